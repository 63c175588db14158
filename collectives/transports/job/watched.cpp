// SPDX-License-Identifier: Apache-2.0
#include "weft/collectives/transports/job/watched.h"

#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "weft/collectives/transports/job/ended_jobs.h"

namespace weft {
namespace {

sigset_t watched_signals() {
  sigset_t all;
  sigemptyset(&all);
  for (const int signal : {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCONT})
    sigaddset(&all, signal);
  return all;
}

// Until the process has ended.
int status_after(pid_t process, const sigset_t& signals) {
  for (int status = 0;;) {
    const int signal = sigwaitinfo(&signals, nullptr);
    if (signal == SIGCHLD && waitpid(process, &status, WNOHANG) == process) return status;
    if (signal > 0 && signal != SIGCHLD) kill(process, signal);
  }
}

[[noreturn]] void end_with(int status) {
  if (WIFSIGNALED(status)) {
    const struct rlimit nothing {};
    setrlimit(RLIMIT_CORE, &nothing);  // the child has written one
    std::signal(WTERMSIG(status), SIG_DFL);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    raise(WTERMSIG(status));
  }
  _exit(WEXITSTATUS(status));
}

// The program anew, since a library that was loaded before a fork may not work after it: MPI_Init of MPICH 4.2 with UCX
// then never ends, now and then. Returns if the program is no longer there.
void start_again() {
  std::error_code error;
  const std::string program = std::filesystem::read_symlink("/proc/self/exe", error);
  std::ifstream given("/proc/self/cmdline");
  std::vector<std::string> words;
  for (std::string word; std::getline(given, word, '\0');) words.push_back(word);
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  setenv("WEFT_WATCH", "0", 1);
  execv(program.c_str(), arguments.data());
}

}  // namespace

void continue_watched() {
  const int64_t began = microseconds_now();
  const pid_t parent = getpid();
  const sigset_t signals = watched_signals();
  sigset_t before;
  std::signal(SIGCHLD, SIG_DFL);
  sigprocmask(SIG_BLOCK, &signals, &before);
  const pid_t child = fork();
  if (child > 0) {
    prctl(PR_SET_NAME, "weft-watches");
    const int status = status_after(child, signals);
    if (status != 0) {
      tell_supervisor(WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status));
      record_end(child, status, began);
    }
    end_with(status);
  }
  sigprocmask(SIG_SETMASK, &before, nullptr);
  if (child < 0) return;  // no process is left for it, so it is not watched
  setpgid(0, 0);          // a signal to the parent's group comes once, through the parent
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) raise(SIGKILL);
  start_again();
}

}  // namespace weft
