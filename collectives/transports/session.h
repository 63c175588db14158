// SPDX-License-Identifier: Apache-2.0
#pragma once
// A program's part in a job of one or more processes. It begins with MPI_Init, before anything that can fail on a
// single rank, and ends with MPI_Finalize. If a rank fails, all ranks end at once, with one report and a fixed exit
// code for the kind of failure; a rank that only left would make the others wait for ever, or mpiexec report success. A
// program that no launcher has started does not use MPI.
//
//   int main(int argc, char** argv) {
//     return weft::run_session(argc, argv, [&](Session& session) { ...; return 0; });
//   }
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "weft/collectives/transports/job/last_words.h"
#include "weft/collectives/transports/mpi/mpi.h"

namespace weft {

struct SessionOptions {
  std::chrono::milliseconds deadline{0};  // of any single wait; 0: WEFT_TIMEOUT, or a minute
  int expected_ranks = 0;                 // 0: WEFT_RANKS, or any number
  std::string transport;                  // empty: WEFT_TRANSPORT, or the best that works; see connect_hosts
  bool ranks_are_threads = false;         // of each process; see run_ranks
};

class Session {
 public:
  // Removes MPI's arguments from argc and argv. There is one session at a time, and one per program if it uses MPI.
  Session(int& argc, char**& argv, SessionOptions options = {});
  Session(const Session&) = delete;
  ~Session();

  int rank() const { return processes_ ? processes_->rank() : 0; }
  int size() const { return processes_ ? processes_->size() : 1; }
  const SessionOptions& options() const { return options_; }
  const std::shared_ptr<Job>& job() const { return job_; }
  Processes* processes() const { return processes_.get(); }  // null if no launcher has started this program
  int rank_on_node() const { return processes_ ? processes_->rank_on_node() : 0; }

  // The group of all ranks, without NCCL. Its transport is the one requested, else the best that works:
  //   self     one rank
  //   shared   ranks on one node, by shared memory
  //   mpi      any ranks, by MPI messages
  //   nodes    ranks on several nodes: by shared memory on each, and by MPI messages between one rank of each
  //   nccl     the best of the above; `connect` (factory.h) adds NCCL to it
  // A second call returns another view of the same group.
  std::unique_ptr<Transport> connect_hosts() const;
  std::string transport() const;  // as requested by the options or by WEFT_TRANSPORT; empty if by neither
  [[noreturn]] void refuse_transport(const std::string& why) const;  // a usage error, which names the request

  // Calls `body` on so many ranks that are threads of this process, or of each process if there are several (see
  // run_ranks.h). If one fails and another does not end, the process ends.
  void run_ranks(int ranks, const std::function<void(std::unique_ptr<Transport>)>& body);

  // Ends the job: this rank writes a report, then every rank exits with the code.
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
  std::string host_transport() const;  // as connect_hosts takes it; refuses a request that cannot be met
  [[noreturn]] void leave(int exit_code);

  SessionOptions options_;
  std::unique_ptr<Processes> processes_;
  std::shared_ptr<Job> job_;
  std::optional<LastWords> last_words_;
  LastStack last_stack_;
  int exceptions_before_;
  bool finalized_ = false;  // all ranks have reached the end, and any of them may have removed the job's file
  bool ended_ = false;
  bool of_threads_ = false;  // the ranks of each of several processes are threads
};

// Runs the body in a session, and ends the job with a report if it throws.
int run_session(int argc, char** argv, const std::function<int(Session&)>& body, SessionOptions options = {});

}  // namespace weft
