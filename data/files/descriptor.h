// SPDX-License-Identifier: Apache-2.0
#pragma once
// A file descriptor of the operating system, which the destructor closes.
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <utility>

namespace weft {

class Descriptor {
 public:
  explicit Descriptor(int number = -1) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~Descriptor() {
    if (number_ >= 0) close(number_);
  }
  int number() const { return number_; }
  explicit operator bool() const { return number_ >= 0; }

 private:
  int number_;
};

// Calls the system again while it says that a signal has interrupted it, as network disks do.
template <class F> auto uninterrupted(const F& call) {
  auto outcome = call();
  while (outcome < 0 && errno == EINTR) outcome = call();
  return outcome;
}

// If it cannot be opened, errno says why.
inline Descriptor open_file(const std::filesystem::path& path, int flags, mode_t mode = 0) {
  return Descriptor(uninterrupted([&] { return open(path.c_str(), flags | O_CLOEXEC, mode); }));
}

// Locks a file for this process, unless another has it. If it cannot, errno says why.
inline bool try_lock(const Descriptor& file) {
  return uninterrupted([&] { return flock(file.number(), LOCK_EX | LOCK_NB); }) == 0;
}

// Opens /dev/null for those of the standard input, output and error that are closed: the next file that is opened would
// become one of them, and get what is printed.
inline void guard_standard_streams() {
  for (const int file : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (fcntl(file, F_GETFD) < 0) open("/dev/null", O_RDWR);  // takes the least number that is free
}

}  // namespace weft
