// SPDX-License-Identifier: Apache-2.0
#include "weft/data/files/folder_lock.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/utsname.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fstream>

#include "weft/data/files/durable_file.h"

namespace weft {
namespace {

bool is_at(const Descriptor& file, const std::filesystem::path& place) {
  struct stat mine, there;
  return fstat(file.number(), &mine) == 0 && stat(place.c_str(), &there) == 0 && mine.st_dev == there.st_dev &&
         mine.st_ino == there.st_ino;
}

std::string this_host() {
  utsname host{};
  uname(&host);
  return host.nodename;
}

std::string this_process() {
  const std::time_t now = std::time(nullptr);
  std::tm date{};
  char since[40];
  std::strftime(since, sizeof since, "%F %H:%M", localtime_r(&now, &date));
  return "process " + std::to_string(getpid()) + " on " + this_host() + ", since " + since;
}

std::string beginning_of(const Descriptor& file) {
  char text[200];
  const ssize_t count = pread(file.number(), text, sizeof text, 0);
  return count > 0 ? std::string(text, static_cast<size_t>(count)) : "";
}

// Whether the process that a lock file names may still run. Of other machines this is not known.
bool may_run(const std::string& holder) {
  int process = 0;
  char host[200] = "";
  if (std::sscanf(holder.c_str(), "process %d on %199[^,]", &process, host) != 2) return !holder.empty();
  if (host != this_host()) return true;
  if (kill(process, 0) != 0 && errno != EPERM) return false;
  std::ifstream command("/proc/" + std::to_string(process) + "/cmdline");
  return !command || command.peek() != EOF;  // one that has ended, and that nobody has waited for, has none
}

// Who has the lock file; nobody, if this process has locked it.
std::string holder_of(const Descriptor& file, const std::filesystem::path& place) {
  if (try_lock(file)) return "";
  const bool by_another = errno == EWOULDBLOCK;
  const std::string named = beginning_of(file);
  if (by_another) return named.empty() ? "another process" : named;
  return may_run(named) ? named + " (this disk has no locks: delete " + place.string() + " if that has ended)" : "";
}

}  // namespace

FolderLock::FolderLock(const std::filesystem::path& folder) : place_(folder / name) {
  do {  // repeats if the previous holder removed the file before it was locked here
    file_ = open_file(place_, O_RDWR | O_CREAT | O_NOFOLLOW, 0600);
    if (!file_) throw OutputFailure(place_.string() + ": cannot be created: " + std::strerror(errno));
    holder_ = holder_of(file_, place_);
    if (!holder_.empty()) {
      file_ = Descriptor();
      return;
    }
  } while (!is_at(file_, place_));
  const std::string mine = this_process();
  if (uninterrupted([&] { return ftruncate(file_.number(), 0); }) != 0 ||
      uninterrupted([&] { return pwrite(file_.number(), mine.data(), mine.size(), 0); }) < 0)
    throw OutputFailure(place_.string() + ": cannot be written: " + std::strerror(errno));
}

FolderLock::~FolderLock() {
  if (file_ && is_at(file_, place_)) unlink(place_.c_str());
}

}  // namespace weft
