// SPDX-License-Identifier: Apache-2.0
#include "tools/weft/launch/supervisor.h"

#include <poll.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <fstream>

#include "tools/weft/launch/ends.h"
#include "tools/weft/launch/job.h"
#include "tools/weft/launch/run_files.h"
#include "weft/collectives/fault.h"
#include "weft/data/files/checkpoint.h"
#include "weft/data/files/durable_file.h"
#include "weft/engine/text/words.h"

namespace weft::launch {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr double first_pause = 1;  // seconds
constexpr auto longest_wait_for_record = std::chrono::seconds(10);
constexpr auto longest_wait_for_folder = std::chrono::minutes(10);  // ranks on other nodes wait for their deadlines

fs::path beside(const fs::path& run, const char* ending) { return (run / "").parent_path().string() + ending; }

std::string now_in_words() {
  const std::time_t now = std::time(nullptr);
  std::tm date{};
  char words[40];
  std::strftime(words, sizeof words, "%F %T", localtime_r(&now, &date));
  return words;
}

bool is_a_path(const std::string& resume) { return resume != "unfinished" && resume != "auto" && resume != "none"; }

struct Attempt {
  int code = 0;
  bool stalled = false, begun = false, saved = false, all_done = false;
  int64_t ranks = 0, first_step = 0, last_step = 0;
  double seconds = 0;

  std::string end() const {
    const char* const unfinished = code == 0 && !all_done ? ", though not all is done" : "";
    return in_words(code) + unfinished + (stalled ? ", since it made no step for too long" : "");
  }
  std::string steps() const {
    return begun ? "began at step " + grouped(first_step) + ", ended at step " + grouped(last_step)
                 : std::string("ended before its first step");
  }
};

// What follows an attempt: an end with an exit code, or another attempt after a pause.
struct Next {
  bool again;
  int code;
  std::string reason;
};

class Supervisor {
 public:
  explicit Supervisor(const Supervision& wanted)
      : wanted_(wanted),
        options_(run_options(wanted.program)),
        transcript_(beside(options_.out, ".launch.log")),
        report_(beside(options_.out, ".launch.txt")),
        ends_(fs::absolute(beside(options_.out, ".launch.ends"))),
        words_(wanted.program),
        ranks_(wanted.ranks),
        files_(run_files(options_.out)) {
    adopt_orphans();
    setenv("WEFT_WATCH", "1", 0);
    setenv("WEFT_ENDS", ends_.c_str(), 1);
    const char* const requeued = std::getenv("SLURM_RESTART_COUNT");
    if (requeued && std::atoi(requeued) > 0) words_ = resumed(wanted.program, options_, "unfinished");
  }

  int run() {
    write_report(now_in_words() + "  " + joined(whole_command(wanted_.launcher, ranks_, words_)) + "\n" +
                 "attempt  ranks   from step     to step    seconds  end\n");
    for (int64_t number = 1;; ++number) {
      const Attempt attempt = make();
      if (wanted_.launcher.kind != Kind::threads && end_of(attempt.code).remedy == Remedy::ranks) tell_last_calls();
      const Next next = after(attempt);
      tell(number, attempt, next);
      if (!next.again) return next.code;
      words_ = words_to_go_on();
      if (!pause()) return stopped_in_pause();
    }
  }

 private:
  static std::string joined(const Words& words) {
    std::string all;
    for (const std::string& word : words) all += (all.empty() ? "" : " ") + word;
    return all;
  }

  Attempt make();
  int cause_of(int code) const;
  void tell_last_calls();
  Next after(const Attempt& attempt);
  Next after_request(int code);
  Next after_loss(const Attempt& attempt);
  Words words_to_go_on() const;
  int64_t first_step(const RunFiles& before) const;
  void tell(int64_t number, const Attempt& attempt, const Next& next);
  void write_report(const std::string& text);
  bool pause();
  int stopped_in_pause();

  const Supervision wanted_;
  const RunOptions options_;
  Signals signals_;
  Transcript transcript_;
  const fs::path report_;
  const fs::path ends_;  // the exit codes of an attempt's processes, in their order
  Words words_;
  int64_t ranks_, restarts_ = 0, same_ = 1;
  double pause_ = 0;
  RunFiles files_;      // after the last attempt
  bool begun_ = false;  // by one of the attempts
  bool lost_ = false;   // the last attempt has lost ranks
  Asked asked_;
  std::optional<Attempt> before_;
};

Attempt Supervisor::make() {
  const Clock::time_point begin = Clock::now();
  const RunFiles before = files_;
  Attempt attempt;
  attempt.ranks = ranks_;
  std::ofstream{ends_};  // empty
  Job job(whole_command(wanted_.launcher, ranks_, words_), wanted_.launcher.kind, signals_, transcript_);
  const std::chrono::milliseconds stall(static_cast<int64_t>(wanted_.stall_minutes * 60000));
  attempt.code = job.wait(signals_, asked_, {stall, [this] { return activity_of(options_.out); }});
  attempt.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  attempt.stalled = job.stalled();
  files_ = run_files(options_.out);
  attempt.begun = files_.begun_since(before);
  attempt.saved = attempt.begun && files_.saved_since(before);
  attempt.first_step = attempt.begun ? first_step(before) : 0;
  attempt.last_step = std::max(files_.last_step, attempt.first_step);
  if (attempt.code != 0 || !files_.reported) attempt.code = cause_of(attempt.code);
  std::error_code error;
  fs::remove(ends_, error);
  // mpiexec may return 0 after a job that was stopped, or that has lost ranks.
  attempt.all_done = attempt.code == 0 && (files_.reported || !attempt.begun);
  begun_ |= attempt.begun;
  return attempt;
}

// A launcher may lose how a process ended, and return 0 or the code of one that waited for it, or combine the codes of
// several. Then the first end that was recorded, on nodes that share the run's folder, is the cause.
int Supervisor::cause_of(int code) const {
  if (end_of(code).remedy == Remedy::stop) return code;
  std::ifstream ends(ends_);
  for (int recorded = 0; ends >> recorded;) {
    const Remedy remedy = recorded > 0 && recorded < 256 ? end_of(recorded).remedy : Remedy::none;
    if (remedy != Remedy::none && remedy != Remedy::stop) return recorded;
  }
  return code;
}

// Prints how the ranks of all nodes have ended, and their last calls, which the nodes still have. A node that is gone
// may keep the launcher waiting.
void Supervisor::tell_last_calls() {
  const Words record{fs::read_symlink("/proc/self/exe").string(), "record", "--calls", "1"};
  transcript_.say("the last calls of all ranks:");
  Job job(whole_command(wanted_.launcher, ranks_, record), wanted_.launcher.kind, signals_, transcript_);
  if (job.wait(signals_, asked_, {longest_wait_for_record, [] { return ""; }}) != 0)
    transcript_.say("they cannot be read; weft record may read them later");
}

int64_t Supervisor::first_step(const RunFiles& before) const {
  if (files_.folder == before.folder) return before.saved_step;
  try {
    return is_a_path(options_.resume) ? checkpoint_at(options_.resume).step : 0;
  } catch (const std::exception&) {
    return 0;  // it is gone
  }
}

// A run that has begun must not begin anew, nor go on with an earlier run in its folder. One that was reported and is
// started again ends at once.
Words Supervisor::words_to_go_on() const {
  if (!begun_) return words_;
  if (files_.has_checkpoint) return resumed(wanted_.program, options_, "auto");
  return resumed(wanted_.program, options_, is_a_path(options_.resume) ? options_.resume : "none");
}

Next Supervisor::after(const Attempt& attempt) {
  if (attempt.all_done) return {false, 0, "ends"};
  if (end_of(attempt.code).remedy == Remedy::person)
    return {false, attempt.code, "gives up: a restart would end in the same way"};
  if (!asked_.nothing()) return after_request(attempt.code);
  const bool stopped = end_of(attempt.code).remedy == Remedy::stop || (attempt.code == 0 && files_.stopped);
  if (stopped && !attempt.stalled)
    return {false, attempt.code > 0 ? attempt.code : 128 + SIGTERM, "ends, since the job was asked to stop"};
  Next next = after_loss(attempt);
  before_ = attempt;
  if (next.code == 0) next.code = exit_codes::premature_exit;
  return next;
}

Next Supervisor::after_request(int code) {
  if (asked_.stop) return {false, 128 + asked_.stop, "ends, since it was asked to stop; the same command goes on"};
  if (asked_.save == SIGUSR1) return {false, to_be_started_again, "ends after SIGUSR1; the same command goes on"};
  asked_ = {};
  pause_ = 0;
  return {true, code, "goes on after SIGUSR2"};
}

Next Supervisor::after_loss(const Attempt& attempt) {
  // An mpiexec that has not noticed the end of its ranks returns 0.
  const bool lost = attempt.code == 0 || end_of(attempt.code).remedy == Remedy::ranks || attempt.stalled;
  const bool again = lost && std::exchange(lost_, lost) && !attempt.saved;
  const int64_t fewer = again && wanted_.shrink > 0 ? std::max<int64_t>(1, ranks_ - wanted_.shrink) : ranks_;
  const bool same = before_ && before_->begun && attempt.begun && before_->ranks == attempt.ranks &&
                    before_->last_step == attempt.last_step;
  same_ = same ? same_ + 1 : 1;
  if (restarts_ == wanted_.restarts)
    return {false, attempt.code, "gives up: all " + grouped(restarts_) + " restarts are used up"};
  if (same_ >= wanted_.same_step && fewer == ranks_)
    return {false, attempt.code,
            "gives up: " + grouped(same_) + " attempts in a row have ended at step " + grouped(attempt.last_step)};
  ++restarts_;
  pause_ = attempt.saved || pause_ == 0 ? first_pause : 2 * pause_;
  pause_ = std::min(pause_, wanted_.pause);
  std::string reason = "starts again in " + short_number(pause_) + " s";
  if (fewer != ranks_) reason += ", on " + grouped(fewer) + " ranks, since ranks were lost again";
  ranks_ = fewer;
  return {true, attempt.code, reason};
}

void Supervisor::tell(int64_t number, const Attempt& attempt, const Next& next) {
  const std::string ranks = attempt.ranks > 0 ? " on " + grouped(attempt.ranks) + " ranks" : "";
  transcript_.say("attempt " + grouped(number) + ranks + " " + attempt.steps() + " after " + duration(attempt.seconds) +
                  ": " + attempt.end());
  transcript_.say(next.reason);
  char row[120];
  std::snprintf(row, sizeof row, "%7ld  %5s  %10s  %10s  %9.1f  ", number,
                attempt.ranks > 0 ? std::to_string(attempt.ranks).c_str() : "-",
                attempt.begun ? std::to_string(attempt.first_step).c_str() : "-",
                attempt.begun ? std::to_string(attempt.last_step).c_str() : "-", attempt.seconds);
  write_report(row + attempt.end() + "; " + next.reason + "\n");
}

void Supervisor::write_report(const std::string& text) {
  try {
    std::error_code error;
    const uint64_t size = fs::file_size(report_, error);
    AppendedFile(report_, error ? 0 : size).append(text);
  } catch (const OutputFailure& failure) {
    transcript_.say(failure.what());
  }
}

// Waits, too, until the folder is free: a rank on another node may hold it until its deadline. False if a signal has
// asked to stop.
bool Supervisor::pause() {
  const Clock::time_point begin = Clock::now();
  const auto end = begin + std::chrono::duration<double>(pause_);
  std::string told;
  while (true) {
    const std::chrono::duration<double> left = end - Clock::now();
    const std::string holder = left.count() > 0 ? "" : holder_of(options_.out);
    if (left.count() <= 0 && (holder.empty() || Clock::now() - begin > longest_wait_for_folder)) return true;
    if (holder != told) transcript_.say(options_.out.string() + ": waits for " + holder);
    told = holder;
    pollfd files[] = {{signals_.file(), POLLIN, 0}, {}, {}};
    transcript_.wait_for(files[1], files[2]);
    poll(files, 3, left.count() > 0 ? static_cast<int>(std::ceil(left.count() * 1000)) : 500);
    while (const int signal = signals_.take()) asked_.add(signal);
    if (asked_.stop || asked_.save == SIGUSR1) return false;
    asked_ = {};  // SIGUSR2: nothing is running that could be saved
  }
}

int Supervisor::stopped_in_pause() {
  transcript_.say("ends, since it was asked to");
  write_report("stopped between two attempts\n");
  return asked_.stop ? 128 + asked_.stop : to_be_started_again;
}

}  // namespace

int supervise(const Supervision& wanted) { return Supervisor(wanted).run(); }

}  // namespace weft::launch
