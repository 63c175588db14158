// SPDX-License-Identifier: Apache-2.0
#include "weft/collectives/transports/job/last_words.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <system_error>

#include "weft/collectives/transports/job/ended_jobs.h"

namespace weft {
namespace {

// Handlers of signals and of std::atexit take no argument, so they find the jobs here. If there are more jobs at one
// time, the others write no last words.
struct RegisteredJob {
  std::atomic<const Job*> job;
  std::atomic<LastWords::Ranks> ranks;
};
std::array<RegisteredJob, 32> registered_jobs;
static_assert(std::atomic<const Job*>::is_always_lock_free);

struct Crash {
  int signal;
  std::string_view name;
  struct sigaction before;  // the action that this one replaces
};
std::array<Crash, 5> crashes = {{{SIGSEGV, "SIGSEGV", {}},
                                 {SIGABRT, "SIGABRT", {}},
                                 {SIGBUS, "SIGBUS", {}},
                                 {SIGFPE, "SIGFPE", {}},
                                 {SIGILL, "SIGILL", {}}}};

// A text made without allocating, because a crash may be within malloc.
class Words {
 public:
  Words& operator<<(std::string_view piece) {
    const size_t fits = std::min(piece.size(), text_.size() - size_);
    std::copy_n(piece.begin(), fits, text_.begin() + static_cast<std::ptrdiff_t>(size_));
    size_ += fits;
    return *this;
  }
  Words& operator<<(int64_t number) {
    std::array<char, 24> digits;
    const char* end = std::to_chars(digits.begin(), digits.end(), number).ptr;
    return *this << std::string_view(digits.data(), static_cast<size_t>(end - digits.data()));
  }
  void write() const {
    const ssize_t written = ::write(STDERR_FILENO, text_.data(), size_);
    (void)written;  // there is no way to report a failure here
  }

 private:
  std::array<char, 2048> text_;
  size_t size_ = 0;
};

void add_last_call(Words& words, const Job& job, int r) {
  const Job::Entry entry = job.last(r);
  if (!entry.began) {
    words << "\n  it has made no call yet";
    return;
  }
  const Call& call = entry.call;
  words << "\n  its last call was call " << static_cast<int64_t>(call.sequence) << " of group " << entry.group << " ("
        << entry.group_size << " ranks): " << name(call.verb);
  if (*call.name) words << " '" << call.name << "'";
  words << " at " << call.file << ":" << call.line;
  if (const std::string& path = job.memory().path(); !path.empty()) {
    words << "\n  the last calls of all ranks are in " << path;
    job.keep_logs();
  }
}

// Finds the job of this thread, and its rank. If the thread is no rank, finds those of the process, unless its ranks
// are threads.
std::pair<const RegisteredJob*, int> find_this_rank() {
  const int process = getpid(), this_thread = static_cast<int>(syscall(SYS_gettid));
  for (const int thread : {this_thread, 0}) {
    for (const RegisteredJob& each : registered_jobs) {
      const Job* job = each.job;
      if (!job || (thread == 0 && each.ranks == LastWords::Ranks::threads)) continue;
      for (int r = 0; r < job->ranks(); ++r)
        if (job->is_rank(r, process, thread)) return {&each, r};
    }
  }
  return {nullptr, -1};
}

std::string_view member_of(const RegisteredJob& found) {
  return found.ranks == LastWords::Ranks::processes_of_threads ? "process " : "rank ";
}

void on_crash(int signal, siginfo_t* info, void*) {
  const auto crash =
      std::find_if(crashes.begin(), crashes.end(), [&](const Crash& each) { return each.signal == signal; });
  if (const auto [found, r] = find_this_rank(); found) {
    const Job& job = *found->job;
    Words words;
    words << "weft: " << member_of(*found) << job.global(r) << " has crashed: signal " << signal << " (" << crash->name
          << ")";
    add_last_call(words, job, r);
    words << "\n";
    words.write();
  }
  sigaction(signal, &crash->before, nullptr);
  if (info->si_code <= 0) raise(signal);  // a signal that was sent; any other is raised again by the instruction
}

void write_end(const RegisteredJob& found, int r, int exit_code, std::string_view what) {
  const Job& job = *found.job;
  Words words;
  words << "weft: " << member_of(found) << job.global(r) << " ends the job with exit code " << exit_code << "\n  "
        << what;
  add_last_call(words, job, r);
  words << "\n";
  words.write();
}

void on_exit_of_thread() {
  const auto [found, r] = find_this_rank();
  if (!found || found->ranks != LastWords::Ranks::threads) return;
  write_end(*found, r, exit_codes::premature_exit, "the program called exit while its ranks were running");
  std::_Exit(exit_codes::premature_exit);
}

void handle_crashes() {
  struct sigaction action {};
  action.sa_sigaction = on_crash;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  for (Crash& crash : crashes) {
    struct sigaction now {};
    sigaction(crash.signal, nullptr, &now);
    if ((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == on_crash) continue;
    crash.before = now;
    sigaction(crash.signal, &action, nullptr);
  }
}

}  // namespace

void write_report(const std::string& report) {
  const ssize_t written = write(STDERR_FILENO, report.data(), report.size());
  (void)written;  // there is no way to report a failure here
}

LastWords::LastWords(const Job& job, Ranks ranks) : place_(registered_jobs.size()) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  static const int registered = std::atexit(on_exit_of_thread);
  (void)registered;
  handle_crashes();
  const auto free =
      std::find_if(registered_jobs.begin(), registered_jobs.end(), [](const RegisteredJob& each) { return !each.job; });
  if (free == registered_jobs.end()) return;
  place_ = static_cast<size_t>(free - registered_jobs.begin());
  free->ranks = ranks;
  free->job = &job;
}

LastWords::~LastWords() {
  if (place_ < registered_jobs.size()) registered_jobs[place_].job = nullptr;
}

LastStack::LastStack() {
  stack_t now{};
  sigaltstack(nullptr, &now);
  if (!(now.ss_flags & SS_DISABLE)) return;  // this thread has one already
  constexpr size_t bytes = size_t{64} << 10;
  memory_ = std::make_unique<std::byte[]>(bytes);
  now = {};
  now.ss_sp = memory_.get();
  now.ss_size = bytes;
  sigaltstack(&now, nullptr);
}

LastStack::~LastStack() {
  stack_t none{};
  none.ss_flags = SS_DISABLE;
  if (memory_) sigaltstack(&none, nullptr);
}

void end_process(int exit_code, EndAll end_all) {
  tell_supervisor(exit_code);                                  // a launcher may end its parent before that tells
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // mpiexec may lose output written just before the end
  const TimeLimit ending(std::chrono::seconds(1), [exit_code] { std::_Exit(exit_code); });
  end_all(exit_code);
  std::_Exit(exit_code);
}

void end_within_call(int exit_code, const std::string& what, EndAll end_all) {
  if (const auto [found, r] = find_this_rank(); found)
    write_end(*found, r, exit_code, what);
  else
    write_report("weft: process " + text(getpid()) + " ends the job with exit code " + text(exit_code) + "\n  " + what +
                 "\n");
  end_process(exit_code, end_all);
}

TimeLimit::TimeLimit(std::chrono::milliseconds limit, std::function<void()> over) : limit_(limit), left_(limit) {
  try {
    thread_ = std::thread([this, over = std::move(over)] {
      std::unique_lock lock(mutex_);
      // Each check counts for this much, so a process that is stopped for long uses little of its limit.
      constexpr std::chrono::milliseconds interval(100);
      for (; left_.count() > 0; left_ -= interval)
        if (over_.wait_for(lock, interval, [this] { return ended_; })) return;
      over();
    });
  } catch (const std::system_error& error) {  // no reason to fail: the other ranks would wait for this one
    write_report("weft: no thread for a time limit, so there is none: " + std::string(error.what()) + "\n");
  }
}

void TimeLimit::renew() {
  const std::lock_guard lock(mutex_);
  left_ = limit_;
}

TimeLimit::~TimeLimit() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  over_.notify_one();
  thread_.join();
}

std::unique_ptr<TimeLimit> time_limit(std::chrono::milliseconds deadline, const std::string& what, EndAll end_all) {
  const auto limit = std::max<std::chrono::milliseconds>(deadline, std::chrono::seconds(5));
  return std::make_unique<TimeLimit>(limit, [limit, what, end_all] {
    write_report("weft: deadline: " + what + " has not ended after " + text(limit.count() / 1000) + " s\n  process " +
                 text(getpid()) + " leaves with exit code " + text(exit_codes::deadline) + "\n");
    end_process(exit_codes::deadline, end_all);
  });
}

}  // namespace weft
