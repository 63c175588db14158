// SPDX-License-Identifier: Apache-2.0
#include "tools/weft/launch/signals.h"

#include <sys/signalfd.h>

#include "weft/engine/tensor/error.h"

namespace weft::launch {
namespace {

// Whether this process was started under nohup. UCX, which MPI may bring along, takes SIGHUP for itself as soon as it
// is loaded, so this is asked before.
constinit bool hangup_was_ignored = false;
void look(int, char**, char**) {
  struct sigaction now {};
  hangup_was_ignored = sigaction(SIGHUP, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}
[[gnu::section(".preinit_array"), gnu::used]] void (*const before_libraries)(int, char**, char**) = look;

}  // namespace

Signals::Signals() {
  sigset_t all;
  sigemptyset(&all);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGCHLD}) sigaddset(&all, signal);
  if (hangup_was_ignored) {
    sigdelset(&all, SIGHUP);
    std::signal(SIGHUP, SIG_IGN);
  }
  std::signal(SIGPIPE, SIG_IGN);  // a closed terminal ends no job
  pthread_sigmask(SIG_BLOCK, &all, &before_);
  file_ = Descriptor(signalfd(-1, &all, SFD_CLOEXEC | SFD_NONBLOCK));
  require(static_cast<bool>(file_), "signals cannot be received");
}

int Signals::take() {
  signalfd_siginfo signal{};
  return read(file_.number(), &signal, sizeof signal) == sizeof signal ? static_cast<int>(signal.ssi_signo) : 0;
}

void Signals::restore_in_child() const {
  std::signal(SIGPIPE, SIG_DFL);
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

void Asked::add(int signal) {
  if (signal == SIGUSR1 || signal == SIGUSR2) {
    if (save != SIGUSR1) save = signal;
  } else if (signal != 0 && signal != SIGCHLD) {
    if (stop == 0) stop = signal;
    ++times;
  }
}

}  // namespace weft::launch
