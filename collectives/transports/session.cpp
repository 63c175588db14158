// SPDX-License-Identifier: Apache-2.0
#include "weft/collectives/transports/session.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "weft/collectives/checks/agreement.h"
#include "weft/collectives/transports/environment.h"
#include "weft/collectives/transports/job/watched.h"
#include "weft/collectives/transports/shared/shared_memory.h"
#include "weft/engine/kernels/cpu_kinds.h"

namespace weft {
namespace {

// The handlers of std::set_terminate and std::atexit take no argument, so they find the session here.
Session* the_session = nullptr;
std::terminate_handler previous_terminate_handler = nullptr;

int number_in(const char* variable) {
  const char* given = std::getenv(variable);
  return given ? launcher_number_in(given) : 0;
}

std::string chosen_transport(const SessionOptions& options) {
  if (!options.transport.empty()) return options.transport;
  const char* given = std::getenv("WEFT_TRANSPORT");
  return given ? given : "";
}

// One process without a launcher starts no MPI, which would listen on the network.
bool needs_mpi(const SessionOptions& options) {
  return mpi_is_launched() || chosen_transport(options) == "mpi" || chosen_transport(options) == "nodes";
}

// Whether the files or options given to the program are wrong. Then the last calls of its ranks explain nothing.
bool is_input_error(int exit_code) {
  using namespace exit_codes;
  return exit_code == usage || exit_code == malformed_input || exit_code == missing_input || exit_code == io ||
         exit_code == configuration_differs || exit_code == wrong_launcher;
}

// Without this check, a wrong WEFT_CPU would be an exception of one rank where it makes its first tensor.
void check_cpu() {
  try {
    chosen_cpu_kind();
  } catch (const Error& error) {
    throw Fault(exit_codes::usage, error.what());
  }
}

// The settings that must be equal on all ranks, because they decide which calls a rank makes.
std::string settings(const SessionOptions& options) {
  const auto variable = [](const std::string& name) {
    const char* given = std::getenv(name.c_str());
    return "\n" + name + "=" + (given ? given : "");
  };
  return "WEFT_TRANSPORT=" + chosen_transport(options) + variable("WEFT_DEBUG") + variable("WEFT_LINK");
}

// Nothing may fail on a single rank before MPI has started, so a wrong WEFT_TIMEOUT is reported later.
std::chrono::milliseconds starting_deadline(const SessionOptions& options) try {
  return options.deadline.count() > 0 ? options.deadline : default_deadline();
} catch (const Fault&) {
  return std::chrono::minutes(1);
}

std::unique_ptr<TimeLimit> start(const SessionOptions& options) {
  const char* const watched = std::getenv("WEFT_WATCH");
  if (watched && std::string_view(watched) == "1" && mpi_is_launched()) continue_watched();
  return time_limit(starting_deadline(options), "starting the job (MPI_Init)", abort_mpi);
}

}  // namespace

Session::Session(int& argc, char**& argv, SessionOptions options) : Session(argc, argv, options, start(options)) {}

Session::Session(int& argc, char**& argv, SessionOptions options, std::unique_ptr<TimeLimit>)
    : options_(std::move(options)),
      processes_(needs_mpi(options_) ? start_mpi(argc, argv, options_.ranks_are_threads) : nullptr),
      exceptions_before_(std::uncaught_exceptions()) {
  require(!the_session, "session: there is one already");
  the_session = this;
  previous_terminate_handler = std::set_terminate(on_terminate);
  static const int registered = std::atexit(on_exit);
  (void)registered;
  try {
    const bool given = options_.deadline.count() > 0;
    options_.deadline = starting_deadline(options_);
    check_launcher();
    join();
    // These checks may fail now, because any rank can end all others.
    if (!given) default_deadline();
    if (const char* ranks = std::getenv("WEFT_RANKS")) ranks_in("WEFT_RANKS", ranks);
    if (const char* link = std::getenv("WEFT_LINK")) link_in("WEFT_LINK", link);
    if (const char* watch = std::getenv("WEFT_WATCH")) switch_in("WEFT_WATCH", watch);
    check_cpu();
    if (size() > 1 && !processes_->allows_threads())
      throw Fault(exit_codes::wrong_launcher,
                  "wrong library: " + mpi_library() +
                      " allows a program no threads of its own, and this one has some; take "
                      "one that grants MPI_THREAD_FUNNELED");
    compare_settings();
    host_transport();  // refuses now what would otherwise end the job after its training
    last_words_.emplace(*job_, LastWords::Ranks::processes);
  } catch (...) {  // a rank that left now would make the others wait for it
    end_by_current_exception();
  }
}

void Session::run_ranks(int ranks, const std::function<void(std::unique_ptr<Transport>)>& body) {
  const auto stuck = [&](int rank, const Fault& fault) {
    write_report("weft: rank " + text(rank) + " of " + text(ranks * size()) + " ends the job with exit code " +
                 text(fault.exit_code) + "\n  " + fault.what() + "\n");
    leave(fault.exit_code);
  };
  if (size() == 1) return weft::run_ranks(ranks, body, options_.deadline, stuck);
  of_threads_ = true;
  last_words_.emplace(*job_, LastWords::Ranks::processes_of_threads);
  processes_->run_ranks(ranks, body, options_.deadline, stuck);
}

std::string Session::transport() const { return chosen_transport(options_); }

void Session::refuse_transport(const std::string& why) const {
  const char* chosen_by = options_.transport.empty() ? "WEFT_TRANSPORT=" : "transport ";
  throw Fault(exit_codes::usage, chosen_by + transport() + ": " + why);
}

std::string Session::host_transport() const {
  const bool alone = size() == 1, on_one_node = alone || processes_->on_one_node();
  const std::string chosen = transport();
  if (chosen.empty() || chosen == "nccl")
    return alone ? "self" : on_one_node ? "shared" : processes_->one_on_each_node() ? "mpi" : "nodes";
  const bool by_messages = chosen == "mpi" || chosen == "nodes";
  if (chosen != "self" && chosen != "shared" && !by_messages)
    refuse_transport("there are self, shared, mpi, nodes and nccl");
  if (chosen == "self" && !alone) refuse_transport("the session has " + text(size()) + " ranks");
  if (by_messages && !processes_) refuse_transport("this program was built without MPI");
  if (chosen == "shared" && !on_one_node) refuse_transport("the ranks are on several nodes");
  return chosen;
}

std::unique_ptr<Transport> Session::connect_hosts() const {
  const bool alone = size() == 1;
  const std::string chosen = host_transport();
  if (chosen == "nodes" && !alone) return processes_->connect_nodes(job_);
  if (chosen == "nodes" || chosen == "mpi") return processes_->connect(job_);
  using AddressSpace = SharedMemory::AddressSpace;
  return SharedMemory::connect(job_, rank_on_node(), alone ? AddressSpace::one_process : AddressSpace::job_memory);
}

void Session::join() {
  const Job::EndHandler end_handler = [this](const Fault& fault, bool first) {
    end(fault.exit_code, fault.what(), first);
  };
  if (size() > 1) {
    job_ = processes_->join(options_.deadline, end_handler);
  } else {
    job_ = Job::create(Memory::of_this_process(size_t{64} << 30), 1, options_.deadline);
    job_->end_handler = end_handler;
    job_->join(0);
    SharedMemory::lay_out(*job_, SharedMemory::AddressSpace::one_process);
  }
}

Session::~Session() {
  if (std::uncaught_exceptions() > exceptions_before_)
    end(exit_codes::unwinding, "an exception is leaving the session (run_session would tell which)");
  {
    const std::unique_ptr<Transport> world = connect_hosts();
    world->finalize(Site::here());
    finalized_ = true;
    last_words_.reset();
  }
  ended_ = true;
  the_session = nullptr;
  std::set_terminate(previous_terminate_handler);
  job_->memory().remove_file();
  const auto ending = time_limit(options_.deadline, "ending the job (MPI_Finalize)", abort_by_launcher);
  if (processes_) processes_->finalize();
}

void Session::end(int exit_code, const std::string& what) {
  end(exit_code, what, !job_ || job_->record(rank_on_node(), Fault(exit_code, what)));
}

void Session::end(int exit_code, const std::string& what, bool first) {
  ended_ = true;
  // Only the first rank to fail reports, and it ends all others long before this sleep is over.
  if (!first) std::this_thread::sleep_for(std::chrono::seconds(2));
  std::string report = "weft: " + std::string(of_threads_ ? "process " : "rank ") + text(rank()) + " of " +
                       text(size()) + " ends the job with exit code " + text(exit_code) + "\n  " + what;
  if (job_ && is_input_error(exit_code)) {
    if (first) job_->memory().remove_file();  // otherwise the first report may have named it
  } else if (job_ && !finalized_) {
    if (const std::string doing = job_->doing(rank_on_node()); what.find(doing) == std::string::npos)
      report += "\n  its last call was " + doing;
    if (const std::string& path = job_->memory().path(); !path.empty()) {
      report += "\n  the last calls of all ranks are in " + path;
      job_->keep_logs();
    }
  }
  write_report(report + "\n");
  leave(exit_code);
}

void Session::leave(int exit_code) {
  ended_ = true;
  if (ftrylockfile(stdout) == 0) fflush_unlocked(stdout);
  end_process(exit_code, abort_mpi);
}

void Session::end_by_current_exception() {
  const Fault fault = fault_being_handled();
  end(fault.exit_code, (fault.exit_code == exit_codes::exception ? "exception: " : "") + std::string(fault.what()));
}

void Session::on_terminate() {
  if (!the_session) std::abort();
  if (the_session->ended_) std::_Exit(exit_codes::exception);
  if (std::current_exception()) the_session->end_by_current_exception();
  the_session->end(exit_codes::exception, "std::terminate was called");
}

void Session::on_exit() {
  if (the_session && !the_session->ended_)
    the_session->end(exit_codes::premature_exit, "the program called exit before its session was over");
}

void Session::compare_settings() {
  if (size() == 1) return;
  const std::vector<std::string> all = processes_->all_texts(*job_, settings(options_));
  if (const auto difference = first_different_line("were started with different settings", all))
    throw Fault(exit_codes::configuration_differs, *difference);
}

// A launcher of another MPI than this program's starts several jobs of one rank, each of which seems to be right.
void Session::check_launcher() {
  const int expected = options_.expected_ranks ? options_.expected_ranks : number_in("WEFT_RANKS");
  std::string evidence;
  int ranks = 0;
  const auto compare = [&](const char* source, int number) {
    if (ranks == 0 && number > 0 && number != size()) evidence = source, ranks = number;
  };
  compare("the number of ranks expected", expected);
  if (!expected) {
    compare("PMI_SIZE", number_in("PMI_SIZE"));
    compare("OMPI_COMM_WORLD_SIZE", number_in("OMPI_COMM_WORLD_SIZE"));
    if (size() == 1 && !std::getenv("PMI_SIZE") && !std::getenv("OMPI_COMM_WORLD_SIZE")) {
      compare("SLURM_NTASKS", number_in("SLURM_NTASKS"));
      if (std::getenv("MASTER_ADDR")) compare("WORLD_SIZE", number_in("WORLD_SIZE"));  // torchrun sets both
    }
  }
  if (ranks == 0) return;
  // Only rank 0 reports, or the first of several jobs of one rank. The others wait until it has ended them, because
  // mpiexec ends all processes as soon as one has failed, and the report would be lost.
  constexpr const char* variables[] = {"PMI_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID", "RANK"};
  const bool one_of_several = size() == 1 && std::any_of(std::begin(variables), std::end(variables),
                                                         [](auto* variable) { return number_in(variable) > 0; });
  if (rank() > 0 || one_of_several) std::this_thread::sleep_for(std::chrono::seconds(1));
  if (one_of_several) leave(exit_codes::wrong_launcher);
  const bool has_mpi = !mpi_library().empty();
  const std::string remedy = has_mpi ? "start it by the mpiexec of that library: " + mpi_launcher() + " -n " +
                                           text(ranks) + " PROGRAM" +
                                           (std::getenv("SLURM_PROCID") ? ", or by " + mpi_srun() + " PROGRAM" : "")
                                     : "build it with MPI (-Dmpi=enabled) to run several processes";
  end(exit_codes::wrong_launcher,
      "wrong launcher: " + evidence + " is " + text(ranks) + ", but this job has " + text(size()) +
          " rank(s). This program was built with " + (has_mpi ? mpi_library() : "no MPI") + ";\n  " + remedy +
          ". If the number of ranks is as it should be, set WEFT_RANKS=" + text(size()) + ".");
}

int run_session(int argc, char** argv, const std::function<int(Session&)>& body, SessionOptions options) {
  Session session(argc, argv, std::move(options));
  try {
    return body(session);
  } catch (...) {
    session.end_by_current_exception();
  }
}

}  // namespace weft
