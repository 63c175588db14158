// SPDX-License-Identifier: Apache-2.0
#include "weft/data/files/durable_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>  // rename
#include <cstring>

namespace weft {
namespace {

namespace fs = std::filesystem;

constexpr const char* temporary_suffix = ".weft-tmp";
constexpr size_t most_in_memory = size_t{16} << 20;

// A writer holds a lock on its temporary file as long as it lives. On file systems without locks writing works, too,
// but sweep() removes nothing.
bool locked_by_another(const Descriptor& file) { return !try_lock(file) && errno == EWOULDBLOCK; }
bool unlinked(const Descriptor& file) {
  struct stat state;
  return fstat(file.number(), &state) == 0 && state.st_nlink == 0;
}

// Returns 0, or -1 and sets errno.
int sync(const Descriptor& file) {
  return uninterrupted([&] { return fsync(file.number()); });
}
int sync_folder(const fs::path& path) {
  const Descriptor folder = open_file(path.empty() ? "." : path, O_RDONLY | O_DIRECTORY);
  if (!folder) return -1;
  return sync(folder) == 0 || errno == EINVAL ? 0 : -1;  // EINVAL: this file system cannot sync folders
}

[[noreturn]] void report(const fs::path& path, const char* what, int code) {
  throw OutputFailure(path.string() + ": " + what + ": " + std::strerror(code));
}

}  // namespace

DurableFile::DurableFile(fs::path place) : place_(std::move(place)) {
  // The name has the process id and a counter, since threads may write concurrently and a dead process may have had the
  // same id.
  for (int attempt = 0;; ++attempt) {
    temporary_ = place_;
    temporary_ += "." + std::to_string(getpid()) + "-" + std::to_string(attempt) + temporary_suffix;
    file_ = open_file(temporary_, O_WRONLY | O_CREAT | O_EXCL, 0666);
    if (!file_ && errno == EEXIST) continue;
    if (!file_) report(place_, "cannot be created", errno);
    if (!locked_by_another(file_) && !unlinked(file_)) return;  // otherwise swept before it was locked
  }
}

DurableFile::~DurableFile() {
  if (file_) unlink(temporary_.c_str());
}

void DurableFile::write(uint64_t offset, const void* bytes, size_t count) {
  const auto* next = static_cast<const char*>(bytes);
  while (count > 0) {
    const ssize_t done = pwrite(file_.number(), next, count, static_cast<off_t>(offset));
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) report(place_, "cannot be written", done < 0 ? errno : ENOSPC);
    next += done;
    offset += static_cast<uint64_t>(done);
    count -= static_cast<size_t>(done);
    in_memory_ += static_cast<size_t>(done);
  }
  if (in_memory_ >= most_in_memory) drain();
}

// Without this a large file fills the system's memory, which may cost more time than writing does, and all who write to
// this disk wait for the sync at the end.
void DurableFile::drain() {
  in_memory_ = 0;
  constexpr unsigned now = SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
  const int outcome = uninterrupted([&] { return sync_file_range(file_.number(), 0, 0, now); });
  const bool cannot = errno == ENOSYS || errno == EINVAL || errno == EPERM;  // some file systems and containers
  if (outcome != 0 && !cannot) report(place_, "cannot be brought to the disk", errno);
  posix_fadvise(file_.number(), 0, 0, POSIX_FADV_DONTNEED);
}

void DurableFile::commit() {
  if (sync(file_) != 0) report(place_, "cannot be brought to the disk", errno);
  if (rename(temporary_.c_str(), place_.c_str()) != 0) report(place_, "cannot be put in its place", errno);
  file_ = Descriptor();
  if (sync_folder(place_.parent_path()) != 0) report(place_, "its folder cannot be brought to the disk", errno);
}

void DurableFile::sweep(const fs::path& folder) {
  std::error_code ignored;  // a folder that cannot be listed is not swept
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
    if (!entry.path().string().ends_with(temporary_suffix)) continue;
    const Descriptor file = open_file(entry.path(), O_WRONLY | O_NOFOLLOW | O_NONBLOCK);
    if (file && try_lock(file)) unlink(entry.path().c_str());
  }
}

void make_durable_folder(const fs::path& folder) {
  std::error_code error;
  if (fs::is_directory(folder, error)) return;
  const fs::path whole = fs::absolute(folder / "").parent_path();
  make_durable_folder(whole.parent_path());
  fs::create_directory(whole, error);
  if (error) report(folder, "cannot be created", error.value());
  if (sync_folder(whole.parent_path()) != 0) report(folder, "cannot be brought to the disk", errno);
}

}  // namespace weft
