// SPDX-License-Identifier: Apache-2.0
#pragma once
// A job: a launcher or a program, and all processes that it starts on this machine.
#include <chrono>
#include <functional>

#include "tools/weft/launch/command_words.h"
#include "tools/weft/launch/signals.h"
#include "tools/weft/launch/transcript.h"

namespace weft::launch {

class Job {
 public:
  using Clock = std::chrono::steady_clock;
  struct Limits {
    std::chrono::milliseconds stall{0};     // without output or other activity; 0: any
    std::function<std::string()> activity;  // a text that changes if the job gets on
  };

  // Starts it. It is asked to stop if this process dies. Throws Error if the system has no process for it.
  Job(const Words& command, Kind kind, const Signals& signals, Transcript& transcript);
  Job(const Job&) = delete;
  ~Job();

  // Waits until all processes of the job on this machine have ended, and returns the exit code. A launcher may end
  // before the processes that it has started: these get a few seconds, and are killed then. Meanwhile signals are added
  // to `asked` and passed on.
  int wait(Signals& signals, Asked& asked, const Limits& limits);
  bool stalled() const { return stalled_; }  // so it was killed

 private:
  void wait_for_events(const Signals& signals);
  bool copy(Descriptor& from, bool errors);
  void take_signals(Signals& signals, Asked& asked);
  void pass_on(int signal) const;
  void kill_all() const;
  void end_if_stalled(const Limits& limits);
  bool has_ended();
  void reap();

  const Kind kind_;
  Transcript& transcript_;
  Descriptor output_, errors_;
  pid_t process_;
  int status_ = 0;
  bool running_ = true, stalled_ = false;
  Clock::time_point ended_at_, active_at_ = Clock::now(), looked_at_ = active_at_;
  std::string activity_;
};

// Makes this process the parent of processes whose own parent has ended, so that it can wait for them.
void adopt_orphans();

}  // namespace weft::launch
