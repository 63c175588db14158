// SPDX-License-Identifier: Apache-2.0
#include "weft/collectives/transports/job/memory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <ctime>
#include <filesystem>

#include "weft/collectives/transport.h"

namespace weft {
namespace {

constexpr const char* file_prefix = "weft-";
constexpr size_t page_bytes = 4096, max_kept = size_t{1} << 20;

// The beginning of every file of a job.
struct Mark {
  std::array<char, 24> magic{"Weft: memory of a job\n"};
  uint64_t kept = 0;  // bytes that stay when all processes have ended, because a report has named the file
};
static_assert(sizeof(Mark) <= Memory::first);

// A job takes at most an eighth of the address space that its process may have, and no more than the limit on the size
// of a file, because exceeding that limit ends the process.
size_t address_range(size_t at_most) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0) at_most = std::min(at_most, static_cast<size_t>(limit.rlim_cur));
  if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    at_most = std::min(at_most, static_cast<size_t>(limit.rlim_cur / 8));
  return at_most & ~(page_bytes - 1);
}

// Removes a file, or all of it but the part that a report has named. It does so only if the file belongs to a job of
// this user and no living process uses it.
void remove_if_unused(int file, const std::string& path) {
  struct stat status;
  Mark mark;
  const Mark ours;
  if (fstat(file, &status) != 0 || !S_ISREG(status.st_mode) || status.st_uid != geteuid()) return;
  if (pread(file, &mark, sizeof mark, 0) != sizeof mark || mark.magic != ours.magic) return;
  if (flock(file, LOCK_EX | LOCK_NB) != 0 || pread(file, &mark, sizeof mark, 0) != sizeof mark) return;
  const auto kept = static_cast<off_t>(std::min<uint64_t>(mark.kept, max_kept));
  const bool old = std::time(nullptr) - status.st_mtime > 24 * 3600;
  if (kept == 0 || old || (status.st_size > kept && ftruncate(file, kept) != 0)) unlink(path.c_str());
}

std::vector<std::string> files_in(const std::string& folder) {
  std::vector<std::string> files;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored))
    if (entry.path().filename().string().starts_with(file_prefix)) files.push_back(entry.path());
  return files;
}

void remove_unused_files(const std::string& folder) {
  for (const std::string& path : files_in(folder)) {
    const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (file < 0) continue;  // another user's
    remove_if_unused(file, path);
    close(file);
  }
}

constexpr const char* usual_folder = "/dev/shm";

// For where the usual one is missing or full.
std::string other_folder() {
  const char* temporary = std::getenv("TMPDIR");
  return temporary ? temporary : "/tmp";
}

// Makes a file that only this user may open; -1 if that fails. The file is locked before it has a mark, so no process
// takes it for the file of a job that has ended.
int make_file(const std::string& folder, std::string& path) {
  remove_unused_files(folder);
  path = folder + "/" + file_prefix + std::to_string(getpid()) + "-XXXXXX";
  const int file = mkostemp(path.data(), O_CLOEXEC);  // mode 0600
  const Mark mark;
  if (file < 0) return file;
  flock(file, LOCK_SH);
  if (pwrite(file, &mark, sizeof mark, 0) == sizeof mark) return file;
  unlink(path.c_str());
  close(file);
  return -1;
}

constexpr size_t min_range = size_t{1} << 20;

}  // namespace

Memory Memory::map(size_t bytes, int file, const std::string& path) {
  const int flags = MAP_SHARED | MAP_NORESERVE | (file < 0 ? MAP_ANONYMOUS : 0);
  void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, file, 0);
  if (base == MAP_FAILED)
    throw Fault(exit_codes::out_of_memory, "shared memory: " + text(bytes >> 20) + " MiB of address space for " +
                                               (path.empty() ? "the ranks of this process" : path) + ": " +
                                               std::strerror(errno) + "; see ulimit -v");
  return Memory(static_cast<std::byte*>(base), bytes, file, path);
}

Memory Memory::of_this_process(size_t at_most) {
  for (at_most = address_range(at_most);; at_most /= 2) try {
      return map(at_most, -1, "");
    } catch (const Fault&) {
      if (at_most < min_range) throw;  // even this little does not fit into the address space
    }
}

Memory Memory::new_file(size_t at_most) {
  std::string path;
  int file = make_file(usual_folder, path);
  if (file < 0) file = make_file(other_folder(), path);
  require(file >= 0, "shared memory: no file ", path, ": ", std::strerror(errno));
  const size_t bytes = address_range(at_most);
  require(ftruncate(file, static_cast<off_t>(bytes)) == 0, "shared memory: ", bytes >> 20, " MiB in ", path, ": ",
          std::strerror(errno));
  return map(bytes, file, path);
}

Memory Memory::existing_file(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  struct stat status;
  require(file >= 0 && flock(file, LOCK_SH) == 0 && fstat(file, &status) == 0, "shared memory: cannot open ", path,
          ": ", std::strerror(errno));
  return map(static_cast<size_t>(status.st_size), file, path);
}

std::vector<std::byte> Memory::bytes_of_file(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  require(file >= 0, path, ": cannot be opened: ", std::strerror(errno));
  std::vector<std::byte> bytes(max_kept);
  const ssize_t count = pread(file, bytes.data(), bytes.size(), 0);
  close(file);
  bytes.resize(static_cast<size_t>(std::max<ssize_t>(count, 0)));
  return bytes;
}

Memory Memory::copy_of_file(std::span<const std::byte> bytes, const std::string& path) {
  const Mark ours;
  require(bytes.size() >= sizeof ours && std::memcmp(bytes.data(), &ours.magic, sizeof ours.magic) == 0, path,
          ": it is no file of a job of Weft, as a report names it");
  Memory memory = map(bytes.size(), -1, "");
  std::copy(bytes.begin(), bytes.end(), memory.base_);
  return memory;
}

std::vector<std::string> Memory::files() {
  std::vector<std::string> files = files_in(usual_folder);
  for (std::string& path : files_in(other_folder())) files.push_back(std::move(path));
  return files;
}

bool Memory::is_used(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  const bool used = flock(file, LOCK_EX | LOCK_NB) != 0;
  close(file);
  return used;
}

Memory::~Memory() {
  if (base_) munmap(base_, bytes_);
  if (file_ >= 0) close(file_);
}

void Memory::reserve(Offset begin, size_t bytes) const {
  if (begin + bytes > bytes_)
    throw Fault(exit_codes::out_of_memory, "shared memory: " + text(bytes >> 10) + " KiB do not fit into the " +
                                               text(bytes_ >> 20) + " MiB of address space there are for it; an " +
                                               "eighth of ulimit -v is taken");
  if (file_ < 0 || bytes == 0) return;
  int error;
  do {
    error = posix_fallocate(file_, static_cast<off_t>(begin), static_cast<off_t>(bytes));
  } while (error == EINTR);
  if (error == 0) return;
  struct stat status {};
  struct statvfs system {};
  fstat(file_, &status);
  fstatvfs(file_, &system);
  throw Fault(
      exit_codes::out_of_memory,
      "shared memory: " + text(bytes >> 10) + " KiB more in " + path_ + ": " + std::strerror(error) + "; the job has " +
          text(status.st_blocks >> 1) + " KiB of the " + text((system.f_blocks * system.f_frsize) >> 10) +
          " KiB there are in all. In a container, start it " +
          "with more (docker run --shm-size=1g), or let the ranks be threads (./run --ranks) or send messages " +
          "(WEFT_TRANSPORT=mpi)");
}

void Memory::forget(Offset begin, size_t bytes) const {
  const Offset whole = std::min((begin + page_bytes - 1) & ~(page_bytes - 1), begin + bytes);
  const Offset end = std::max((begin + bytes) & ~(page_bytes - 1), whole);
  const bool forgotten = end > whole && madvise(base_ + whole, end - whole, MADV_REMOVE) == 0;
  std::memset(base_ + begin, 0, (forgotten ? whole : end) - begin);
  std::memset(base_ + end, 0, begin + bytes - end);
}

void Memory::keep(size_t bytes) const {
  const uint64_t kept = bytes;
  const ssize_t written = file_ < 0 ? 0 : pwrite(file_, &kept, sizeof kept, offsetof(Mark, kept));
  (void)written;  // there is no way to report a failure here
}

void Memory::remove_file() const {
  if (!path_.empty()) unlink(path_.c_str());
}

}  // namespace weft
