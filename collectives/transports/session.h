#pragma once
// A program's part in a job of one or more processes: from MPI_Init, before anything that could fail on one rank only,
// to MPI_Finalize, unless something failed. Then all ranks end, at once, with one report and the fixed exit code that
// tells what it was, because a rank that merely left would make the others wait for ever, or make mpiexec report
// success. A program that no launcher has started does without MPI.
//
//   int main(int argc, char** argv) {
//     return weft::run_session(argc, argv, [&](Session& session) { ...; return 0; });
//   }
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "collectives/transports/last_words.h"
#include "collectives/transports/mpi.h"

namespace weft {

struct SessionOptions {
  std::chrono::milliseconds deadline{0};  // for any one wait; 0: WEFT_TIMEOUT, or a minute
  int expected_ranks = 0;                 // 0: however many there are; or WEFT_RANKS
  std::string transport;                  // see factory.h
};

class Session {
 public:
  // argc and argv lose what belongs to MPI. One at a time, and one per program where there is MPI.
  Session(int& argc, char**& argv, SessionOptions options = {});
  Session(const Session&) = delete;
  ~Session();

  int rank() const { return processes_ ? processes_->rank() : 0; }
  int size() const { return processes_ ? processes_->size() : 1; }
  const SessionOptions& options() const { return options_; }
  const std::shared_ptr<Job>& job() const { return job_; }
  Processes* processes() const { return processes_.get(); }  // none where no launcher has started this
  int rank_on_node() const { return processes_ ? processes_->rank_on_node() : 0; }

  // Calls `body` as n ranks that are threads of this process (see run_ranks.h). If one fails and another does not end,
  // the process is left.
  void run_ranks(int n, const std::function<void(std::unique_ptr<Transport>)>& body);

  // Ends the job: one report from this rank, then every rank exits with the code.
  [[noreturn]] void end(int exit_code, const std::string& what);
  [[noreturn]] void end_by_current_exception();

 private:
  static void on_terminate();
  static void on_exit();
  Session(int& argc, char**& argv, SessionOptions options, std::unique_ptr<TimeLimit> starting);
  [[noreturn]] void end(int exit_code, const std::string& what, bool first);
  void check_launcher();
  void join();
  void compare_settings();
  [[noreturn]] void leave(int exit_code);

  SessionOptions options_;
  std::unique_ptr<Processes> processes_;
  std::shared_ptr<Job> job_;
  std::optional<LastWords> last_words_;
  LastStack last_stack_;
  int exceptions_before_;
  bool finalized_ = false;  // all ranks have come to their end, and any of them may have removed the job's file
  bool over_ = false;
};

// Runs the body in a session, and reports what it throws.
int run_session(int argc, char** argv, const std::function<int(Session&)>& body, SessionOptions options = {});

}  // namespace weft
