// SPDX-License-Identifier: Apache-2.0
#include "weft/data/files/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/utsname.h>

#include <cerrno>
#include <cstring>
#include <ctime>

#include "weft/data/files/durable_file.h"

namespace weft {
namespace {

bool is_at(const Descriptor& file, const std::filesystem::path& place) {
  struct stat mine, there;
  return fstat(file.number(), &mine) == 0 && stat(place.c_str(), &there) == 0 && mine.st_dev == there.st_dev &&
         mine.st_ino == there.st_ino;
}

std::string this_process() {
  utsname host{};
  uname(&host);
  const std::time_t now = std::time(nullptr);
  std::tm date{};
  char since[40];
  std::strftime(since, sizeof since, "%F %H:%M", localtime_r(&now, &date));
  return "process " + std::to_string(getpid()) + " on " + host.nodename + ", since " + since;
}

std::string beginning_of(const Descriptor& file) {
  char text[200];
  const ssize_t count = pread(file.number(), text, sizeof text, 0);
  return count > 0 ? std::string(text, static_cast<size_t>(count)) : "another process";
}

}  // namespace

FolderLock::FolderLock(const std::filesystem::path& folder) : place_(folder / name) {
  do {  // repeats if the previous holder removed the file before it was locked here
    file_ = Descriptor(open(place_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644));
    if (!file_) throw OutputFailure(place_.string() + ": cannot be created: " + std::strerror(errno));
    if (flock(file_.number(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
      holder_ = beginning_of(file_);
      file_ = Descriptor();
      return;
    }
  } while (!is_at(file_, place_));
  const std::string mine = this_process();
  if (ftruncate(file_.number(), 0) != 0 || pwrite(file_.number(), mine.data(), mine.size(), 0) < 0)
    throw OutputFailure(place_.string() + ": cannot be written: " + std::strerror(errno));
}

FolderLock::~FolderLock() {
  if (file_ && is_at(file_, place_)) unlink(place_.c_str());
}

}  // namespace weft
