// SPDX-License-Identifier: Apache-2.0
#include "apps/shared/run/output.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

namespace weft {
namespace {

// O_NONBLOCK belongs to what was opened, which the shell and other programs share, so it is opened once more.
int open_without_waiting(int file) {
  struct stat about {};
  if (fstat(file, &about) != 0 || !(S_ISCHR(about.st_mode) || S_ISFIFO(about.st_mode))) return -1;
  const std::string path = "/proc/self/fd/" + std::to_string(file);
  return open(path.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
}

bool takes_more(int file, int milliseconds) {
  pollfd asked{file, POLLOUT, 0};
  return poll(&asked, 1, milliseconds) > 0;
}

}  // namespace

Output::Output(int file) : file_(file), own_(open_without_waiting(file)) {}

Output::~Output() {
  while (!send()) takes_more(file_, -1);
}

bool Output::send() {
  const int file = own_ ? own_.number() : file_;
  size_t taken = 0;
  while (taken < kept_.size() && takes_more(file, 0)) {
    const ssize_t count = ::write(file, kept_.data() + taken, kept_.size() - taken);
    if (count < 0 && errno == EAGAIN) break;
    if (count < 0 && errno != EINTR) {
      const bool terminal_is_gone = own_ && errno == EIO;  // its user has closed it, and nothing is wrong
      if (!terminal_is_gone) error_ = errno;
      taken = kept_.size();
    }
    taken += static_cast<size_t>(std::max<ssize_t>(count, 0));
  }
  kept_.erase(0, taken);
  return kept_.empty();
}

void Output::write(const std::string& text) {
  const std::lock_guard lock(mutex_);
  kept_ += text;
  send();
}

size_t Output::send_kept() {
  const std::lock_guard lock(mutex_);
  send();
  return kept_.size();
}

void Output::show(const std::string& line) {
  const std::lock_guard lock(mutex_);
  if (!send()) return;
  kept_ = line;
  send();
}

}  // namespace weft
