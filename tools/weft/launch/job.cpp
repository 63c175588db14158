// SPDX-License-Identifier: Apache-2.0
#include "tools/weft/launch/job.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "tools/weft/launch/ends.h"
#include "weft/engine/tensor/error.h"

namespace weft::launch {
namespace {

using namespace std::chrono_literals;

constexpr auto time_for_orphans = 5s;  // to end by themselves; mpiexec's take a second
constexpr auto time_for_killed = 15s;  // after which the system does not let them go
constexpr auto time_to_stop = 20s;     // for a job that is stalled

struct Pipe {
  Descriptor in, out;
  Pipe() {
    int ends[2];
    require(pipe2(ends, O_CLOEXEC) == 0, "no pipe can be made: ", std::strerror(errno));
    in = Descriptor(ends[0]), out = Descriptor(ends[1]);
    fcntl(in.number(), F_SETFL, O_NONBLOCK);
  }
};

// At which a job saves and ends. Of the signals at which a program does, every mpiexec passes on SIGTERM, but not all
// others. srun kills all ranks at SIGTERM and SIGHUP, and passes on SIGUSR1.
int stop_signal(Kind kind) { return kind == Kind::srun ? SIGUSR1 : SIGTERM; }

// In the new process. Only calls that are safe after fork in a process with threads.
[[noreturn]] void become(char* const* words, pid_t parent, Kind kind, const Signals& signals, const Pipe& output,
                         const Pipe& errors) {
  setpgid(0, 0);  // Ctrl-C is for this process, which passes it on once
  prctl(PR_SET_PDEATHSIG, stop_signal(kind));
  if (getppid() != parent) _exit(127);
  const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
  dup2(nothing, STDIN_FILENO);
  dup2(output.out.number(), STDOUT_FILENO);
  dup2(errors.out.number(), STDERR_FILENO);
  signals.restore_in_child();
  execvp(words[0], words);
  const int error = errno;
  dprintf(STDERR_FILENO, "weft launch: %s: %s\n", words[0], std::strerror(error));
  _exit(127);
}

// The children of this process but ssh's, whose connections may serve others. From /proc, as waitpid does not name
// them.
Words orphans() {
  Words found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    char text[400] = {};
    const Descriptor file(open((entry.path() / "stat").c_str(), O_RDONLY | O_CLOEXEC));
    if (!file || read(file.number(), text, sizeof text - 1) <= 0) continue;
    const char* const end = std::strrchr(text, ')');  // "71 (name) S PARENT ..."
    if (end && std::atoi(end + 4) == getpid() && !std::strstr(text, "(ssh)")) found.push_back(name);
  }
  return found;
}

}  // namespace

void adopt_orphans() { prctl(PR_SET_CHILD_SUBREAPER, 1); }

Job::Job(const Words& command, Kind kind, const Signals& signals, Transcript& transcript)
    : kind_(kind), transcript_(transcript) {
  Pipe output, errors;
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  const pid_t parent = getpid();
  process_ = fork();
  if (process_ == 0) become(words.data(), parent, kind, signals, output, errors);
  require(process_ > 0, "no process can be started: ", std::strerror(errno));
  setpgid(process_, process_);
  output_ = std::move(output.in), errors_ = std::move(errors.in);
}

Job::~Job() {
  if (running_) kill_all();
}

int Job::wait(Signals& signals, Asked& asked, const Limits& limits) {
  if (limits.activity) activity_ = limits.activity();
  do {
    wait_for_events(signals);
    for (const bool errors : {false, true})
      if (copy(errors ? errors_ : output_, errors)) active_at_ = Clock::now();
    take_signals(signals, asked);
    reap();
    if (running_) end_if_stalled(limits);
  } while (!has_ended());
  for (const bool errors : {false, true})
    while (copy(errors ? errors_ : output_, errors)) continue;
  return exit_code_of(status_);
}

// Or for a while.
void Job::wait_for_events(const Signals& signals) {
  std::array<pollfd, 5> files{
      pollfd{signals.file(), POLLIN, 0}, {output_.number(), POLLIN, 0}, {errors_.number(), POLLIN, 0}};
  transcript_.wait_for(files[3], files[4]);
  poll(files.data(), files.size(), running_ ? 1000 : 50);
}

// Copies some of what there is. False if there is nothing.
bool Job::copy(Descriptor& from, bool errors) {
  if (!from) return false;
  static std::array<char, 1 << 16> bytes;
  const ssize_t count = read(from.number(), bytes.data(), bytes.size());
  if (count == 0) from = Descriptor();
  if (count <= 0) return false;
  const std::string_view piece(bytes.data(), static_cast<size_t>(count));
  errors ? transcript_.errors(piece) : transcript_.output(piece);
  return true;
}

void Job::take_signals(Signals& signals, Asked& asked) {
  while (const int signal = signals.take()) {
    const bool first = asked.nothing();
    const int times = asked.times;
    asked.add(signal);
    if (!running_ || signal == SIGCHLD) continue;
    if (first || (times > 0 && asked.times == 2)) pass_on(signal);
    if (asked.times > 2) kill_all();
  }
}

void Job::pass_on(int signal) const {
  const bool as_it_is = kind_ == Kind::threads && signal != SIGUSR2;
  kill(process_, as_it_is ? signal : stop_signal(kind_));
}

// Without srun, its ranks would go on.
void Job::kill_all() const { kind_ == Kind::srun ? kill(process_, SIGTERM) : kill(-process_, SIGKILL); }

void Job::end_if_stalled(const Limits& limits) {
  const auto now = Clock::now();
  if (limits.stall == 0ms || now - looked_at_ < std::min<Clock::duration>(limits.stall / 8, 10s)) return;
  looked_at_ = now;
  const std::string activity = limits.activity();
  if (activity != activity_) activity_ = activity, active_at_ = now;
  if (stalled_ && now - active_at_ > limits.stall + time_to_stop) kill_all();
  if (stalled_ || now - active_at_ <= limits.stall) return;
  stalled_ = true;
  kill(process_, stop_signal(kind_));
}

void Job::reap() {
  int status = 0;
  for (pid_t ended = 0; (ended = waitpid(-1, &status, WNOHANG)) > 0;) {
    if (ended != process_) continue;
    running_ = false;
    status_ = status;
    ended_at_ = Clock::now();
  }
}

bool Job::has_ended() {
  if (running_) return false;
  const Words left = orphans();
  const auto since = Clock::now() - ended_at_;
  if (left.empty() || since > time_for_killed) return true;
  if (since > time_for_orphans)
    for (const std::string& process : left) kill(std::stoi(process), SIGKILL);
  return false;
}

}  // namespace weft::launch
