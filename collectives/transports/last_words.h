#pragma once
// What a process says when it ends otherwise than by returning: one report, and then the end.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "collectives/transports/job.h"

namespace weft {

// To standard error, in one piece, so that the reports of several ranks do not mix.
void write_report(const std::string& report);

// While this lives, a rank of the job that crashes (SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL) in this process is named,
// with the signal and its last call; then comes what the signal did before, which is usually to end the process. Where
// ranks are threads, one that calls `exit` ends the job by its code.
class LastWords {
 public:
  enum class Ranks { processes, threads };
  LastWords(const Job& job, Ranks ranks);
  LastWords(const LastWords&) = delete;
  ~LastWords();

 private:
  size_t place_;
};

// A stack for the last words of this thread, whose own may be what has overflowed.
class LastStack {
 public:
  LastStack();
  LastStack(const LastStack&) = delete;
  ~LastStack();

 private:
  std::unique_ptr<std::byte[]> memory_;
};

// Ends the process with exit code 86 if this does not go in time: for what may wait for ever and cannot be polled.
class TimeLimit {
 public:
  TimeLimit(std::chrono::milliseconds limit, const std::string& what);
  TimeLimit(const TimeLimit&) = delete;
  ~TimeLimit();

 private:
  std::mutex mutex_;
  std::condition_variable over_;
  bool gone_ = false;
  std::thread thread_;
};

}  // namespace weft
