#include "collectives/transports/memory.h"

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

#include "engine/error.h"

namespace weft {
namespace {

constexpr const char* file_prefix = "weft-";

// A new file that only this user may open, or -1.
int make_file(const std::string& folder, std::string& path) {
  path = folder + "/" + file_prefix + std::to_string(getpid()) + "-XXXXXX";
  return mkostemp(path.data(), O_CLOEXEC);  // mode 0600
}

// What the file may grow to: by the file system's free space, and by this process's limit, which kills those who
// exceed it.
size_t room_for(int file) {
  struct statvfs system;
  struct rlimit limit;
  size_t room = SIZE_MAX;
  if (fstatvfs(file, &system) == 0) room = static_cast<size_t>(system.f_bavail) * system.f_frsize;
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0) room = std::min(room, static_cast<size_t>(limit.rlim_cur));
  if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    room = std::min(room, static_cast<size_t>(limit.rlim_cur / 8));
  return room & ~size_t{4095};
}

// What a job that failed has left for the post-mortem shrinks to its logs, and goes after a day. That nobody is using
// it any more shows in its lock, which every living process holds.
void tidy(const std::string& folder) {
  constexpr off_t logs = off_t{4} << 20;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    if (!entry.path().filename().string().starts_with(file_prefix)) continue;
    const int file = ::open(entry.path().c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    struct stat status;
    if (file < 0) continue;  // another user's
    if (flock(file, LOCK_EX | LOCK_NB) == 0 && fstat(file, &status) == 0) {
      if (std::time(nullptr) - status.st_mtime > 24 * 3600)
        unlink(entry.path().c_str());
      else if (status.st_size > logs && ftruncate(file, logs) != 0)
        unlink(entry.path().c_str());
    }
    close(file);
  }
}

constexpr size_t smallest = size_t{64} << 20;

}  // namespace

Memory Memory::map(size_t bytes, int file, const std::string& path) {
  if (file >= 0) flock(file, LOCK_SH);  // until the last process has ended; see tidy
  const int flags = MAP_SHARED | MAP_NORESERVE | (file < 0 ? MAP_ANONYMOUS : 0);
  void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, file, 0);
  require(base != MAP_FAILED, "shared memory: ", bytes >> 20, " MiB of address space for ",
          path.empty() ? "the ranks of this process" : path, ": ", std::strerror(errno));
  return Memory(static_cast<std::byte*>(base), bytes, file, path);
}

Memory Memory::of_this_process(size_t at_most) {
  for (;; at_most /= 2) try {
      return map(at_most, -1, "");
    } catch (const Error&) {
      if (at_most < smallest) throw;  // the address space is limited, but not to this little
    }
}

Memory Memory::new_file(size_t at_most) {
  tidy("/dev/shm");
  std::string path;
  int file = make_file("/dev/shm", path);
  const char* temporary = std::getenv("TMPDIR");
  if (file < 0) file = make_file(temporary ? temporary : "/tmp", path);
  require(file >= 0, "shared memory: no file ", path, ": ", std::strerror(errno));
  const size_t bytes = std::min(at_most, room_for(file));
  require(ftruncate(file, static_cast<off_t>(bytes)) == 0, "shared memory: ", bytes >> 20, " MiB in ", path, ": ",
          std::strerror(errno));
  return map(bytes, file, path);
}

Memory Memory::existing_file(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  struct stat status;
  require(file >= 0 && fstat(file, &status) == 0, "shared memory: cannot open ", path, ": ", std::strerror(errno));
  return map(static_cast<size_t>(status.st_size), file, path);
}

Memory::~Memory() {
  if (base_) munmap(base_, bytes_);
  if (file_ >= 0) close(file_);
}

void Memory::reserve(Offset begin, size_t bytes) const {
  require(begin + bytes <= bytes_, "shared memory: ", bytes, " bytes more than the ", bytes_ >> 20, " MiB there are");
  if (file_ < 0 || bytes == 0) return;
  const int error = posix_fallocate(file_, static_cast<off_t>(begin), static_cast<off_t>(bytes));
  require(error == 0, "shared memory: ", bytes >> 10, " KiB more in ", path_, ": ", std::strerror(error));
}

void Memory::forget(Offset begin, size_t bytes) const {
  if (file_ >= 0)
    fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(begin), static_cast<off_t>(bytes));
}

void Memory::remove_file() const {
  if (!path_.empty()) unlink(path_.c_str());
}

}  // namespace weft
