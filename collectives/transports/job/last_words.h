// SPDX-License-Identifier: Apache-2.0
#pragma once
// The reports of a process that crashes, calls exit, or exceeds a time limit.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "weft/collectives/transports/job/job.h"

namespace weft {

// Writes to standard error, in one piece, so that the reports of several ranks do not mix.
void write_report(const std::string& report);

// While this lives, a rank of the job that crashes in this process (SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL) writes a
// report with its number, the signal and its last call. Then the previous action of the signal follows, which usually
// ends the process. Where ranks are threads, a rank that calls `exit` ends the job with exit code 71.
class LastWords {
 public:
  // What the members of the job are; processes_of_threads are processes whose threads are the ranks.
  enum class Ranks { processes, threads, processes_of_threads };
  LastWords(const Job& job, Ranks ranks);
  LastWords(const LastWords&) = delete;
  ~LastWords();

 private:
  size_t place_;
};

// A stack for the signal handlers of this thread, because a crash may be an overflow of its own stack.
class LastStack {
 public:
  LastStack();
  LastStack(const LastStack&) = delete;
  ~LastStack();

 private:
  std::unique_ptr<std::byte[]> memory_;
};

// Ends all processes of a job with the code, or returns if it cannot. It may wait for a connection that is gone.
using EndAll = void (*)(int exit_code);

// Ends this process, and before that, within a second, all others.
[[noreturn]] void end_process(int exit_code, EndAll end_all);

// The same with a report, from within a call of a library that no exception may leave.
[[noreturn]] void end_within_call(int exit_code, const std::string& what, EndAll end_all);

// Calls `over` in a thread if this object lives longer than the limit: for operations that may wait for ever and cannot
// be polled.
class TimeLimit {
 public:
  TimeLimit(std::chrono::milliseconds limit, std::function<void()> over);
  TimeLimit(const TimeLimit&) = delete;
  ~TimeLimit();
  void renew();  // the limit begins anew

 private:
  const std::chrono::milliseconds limit_;
  std::mutex mutex_;
  std::condition_variable over_;
  std::chrono::milliseconds left_;
  bool ended_ = false;
  std::thread thread_;
};

// For what waits for all processes: a job's start and end, and new groups. Slow machines need more than a short
// deadline for it. When it is over, this process reports `what`, and ends all with exit code 86.
std::unique_ptr<TimeLimit> time_limit(std::chrono::milliseconds deadline, const std::string& what, EndAll end_all);

}  // namespace weft
