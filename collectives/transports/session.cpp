#include "collectives/transports/session.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "collectives/agreement.h"
#include "collectives/transports/environment.h"
#include "collectives/transports/factory.h"
#include "collectives/transports/shared_memory.h"
#include "engine/cpu_kinds.h"

namespace weft {
namespace {

// The handlers of std::set_terminate and std::atexit take no argument, so they find the session here.
Session* the_session = nullptr;
std::terminate_handler terminate_outside = nullptr;

int number_in(const char* variable) {
  const char* given = std::getenv(variable);
  return given ? launcher_number_in(given) : 0;
}

// MPI would listen on the network, for one process in vain. What launchers tell their processes: those of MPICH, Slurm
// and Open MPI.
bool needs_mpi(const SessionOptions& options) {
  constexpr const char* signs[] = {"PMI_RANK",     "PMI_SIZE",    "PMIX_RANK", "OMPI_COMM_WORLD_SIZE",
                                   "SLURM_PROCID", "SLURM_NTASKS"};
  return std::any_of(std::begin(signs), std::end(signs), [](const char* sign) { return std::getenv(sign); }) ||
         chosen_transport(options) == "mpi";
}

// Whether it is in what the program was given, files and options. Then what its ranks did last tells nothing.
bool is_in_what_was_given(int exit_code) {
  using namespace exit_codes;
  return exit_code == usage || exit_code == malformed_input || exit_code == missing_input || exit_code == io ||
         exit_code == configuration_differs || exit_code == wrong_launcher;
}

// Else a wrong WEFT_CPU would be found where the first tensor is made, as an exception of one rank.
void check_cpu() {
  try {
    chosen_cpu_kind();
  } catch (const Error& error) {
    throw Fault(exit_codes::usage, error.what());
  }
}

// What the environment says that has to be the same on all ranks, or they would make different calls.
std::string settings(const SessionOptions& options) {
  const char* debug = std::getenv("WEFT_DEBUG");
  return "WEFT_TRANSPORT=" + chosen_transport(options) + "\nWEFT_DEBUG=" + (debug ? debug : "");
}

// Starting and ending wait for all processes, which may be slow to come, but not for ever.
std::chrono::milliseconds limit_of(std::chrono::milliseconds deadline) {
  return std::max<std::chrono::milliseconds>(deadline, std::chrono::seconds(10));
}

// Before MPI starts nothing may fail on one rank alone, so what is wrong with WEFT_TIMEOUT is said later.
std::chrono::milliseconds starting_deadline(const SessionOptions& options) try {
  return options.deadline.count() > 0 ? options.deadline : default_deadline();
} catch (const Fault&) {
  return std::chrono::minutes(1);
}

}  // namespace

Session::Session(int& argc, char**& argv, SessionOptions options)
    : Session(argc, argv, options,
              std::make_unique<TimeLimit>(limit_of(starting_deadline(options)), "starting the job (MPI_Init)")) {}

Session::Session(int& argc, char**& argv, SessionOptions options, std::unique_ptr<TimeLimit>)
    : options_(std::move(options)),
      processes_(needs_mpi(options_) ? start_mpi(argc, argv) : nullptr),
      exceptions_before_(std::uncaught_exceptions()) {
  require(!the_session, "session: there is one already");
  the_session = this;
  terminate_outside = std::set_terminate(on_terminate);
  static const int registered = std::atexit(on_exit);
  (void)registered;
  try {
    const bool given = options_.deadline.count() > 0;
    options_.deadline = starting_deadline(options_);
    check_launcher();
    join();
    // What all ranks see, now that one of them can end all.
    if (!given) default_deadline();
    if (const char* ranks = std::getenv("WEFT_RANKS")) ranks_in("WEFT_RANKS", ranks);
    check_cpu();
    if (size() > 1 && !processes_->allows_threads())
      throw Fault(exit_codes::wrong_launcher,
                  "wrong library: " + mpi_library() +
                      " allows a program no threads of its own, and this one has some; take "
                      "one that grants MPI_THREAD_FUNNELED");
    compare_settings();
    last_words_.emplace(*job_, LastWords::Ranks::processes);
  } catch (...) {  // a rank that left now would make the others wait for it
    end_by_current_exception();
  }
}

void Session::run_ranks(int n, const std::function<void(std::unique_ptr<Transport>)>& body) {
  weft::run_ranks(n, body, options_.deadline, [&](int rank, const Fault& fault) {
    write_report("weft: rank " + text(rank) + " of " + text(n) + " ends the job with exit code " +
                 text(fault.exit_code) + "\n  " + fault.what() + "\n");
    leave(fault.exit_code);
  });
}

void Session::join() {
  const Job::Ending ends = [this](const Fault& fault, bool first) { end(fault.exit_code, fault.what(), first); };
  if (size() > 1) {
    job_ = processes_->join(options_.deadline, ends);
  } else {
    job_ = Job::create(Memory::of_this_process(size_t{64} << 30), 1, options_.deadline);
    job_->ends = ends;
    job_->join(0);
    SharedMemory::lay_out(*job_, SharedMemory::Sight::everything);
  }
}

Session::~Session() {
  if (std::uncaught_exceptions() > exceptions_before_)
    end(exit_codes::unwinding, "an exception is leaving the session (run_session would tell which)");
  {
    const std::unique_ptr<Transport> everybody = connect_hosts(*this);
    everybody->finalize(Site::here());
    finalized_ = true;
    last_words_.reset();
  }
  over_ = true;
  the_session = nullptr;
  std::set_terminate(terminate_outside);
  job_->memory().remove_file();
  const TimeLimit ending(limit_of(options_.deadline), "ending the job (MPI_Finalize)");
  if (processes_) processes_->finalize();
}

void Session::end(int exit_code, const std::string& what) {
  end(exit_code, what, !job_ || job_->record(rank_on_node(), Fault(exit_code, what)));
}

void Session::end(int exit_code, const std::string& what, bool first) {
  over_ = true;
  // Only the first to fail reports, and ends everybody long before this is over.
  if (!first) std::this_thread::sleep_for(std::chrono::seconds(2));
  std::string report = "weft: rank " + text(rank()) + " of " + text(size()) + " ends the job with exit code " +
                       text(exit_code) + "\n  " + what;
  if (job_ && is_in_what_was_given(exit_code)) {
    if (first) job_->memory().remove_file();  // else the first report may have named it
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
  over_ = true;
  if (ftrylockfile(stdout) == 0) fflush_unlocked(stdout);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // mpiexec may drop what is written at the very end
  if (processes_) processes_->abort(exit_code);
  std::_Exit(exit_code);
}

void Session::end_by_current_exception() {
  const Fault fault = fault_being_handled();
  end(fault.exit_code, (fault.exit_code == exit_codes::exception ? "exception: " : "") + std::string(fault.what()));
}

void Session::on_terminate() {
  if (!the_session) std::abort();
  if (the_session->over_) std::_Exit(exit_codes::exception);
  if (std::current_exception()) the_session->end_by_current_exception();
  the_session->end(exit_codes::exception, "std::terminate was called");
}

void Session::on_exit() {
  if (the_session && !the_session->over_)
    the_session->end(exit_codes::premature_exit, "the program called exit before its session was over");
}

void Session::compare_settings() {
  if (size() == 1) return;
  const std::vector<std::string> all = processes_->all_texts(*job_, settings(options_));
  if (const auto difference = first_different_line("were started with different settings", all))
    throw Fault(exit_codes::configuration_differs, *difference);
}

// A launcher that does not belong to this program's MPI starts several jobs of one rank, all of which look well.
void Session::check_launcher() {
  const int expected = options_.expected_ranks ? options_.expected_ranks : number_in("WEFT_RANKS");
  std::string evidence;
  int ranks = 0;
  const auto believe = [&](const char* source, int said) {
    if (ranks == 0 && said > 0 && said != size()) evidence = source, ranks = said;
  };
  believe("the number of ranks expected", expected);
  if (!expected) {
    believe("PMI_SIZE", number_in("PMI_SIZE"));
    believe("OMPI_COMM_WORLD_SIZE", number_in("OMPI_COMM_WORLD_SIZE"));
    if (size() == 1 && !std::getenv("PMI_SIZE")) believe("SLURM_NTASKS", number_in("SLURM_NTASKS"));
  }
  if (ranks == 0) return;
  // Rank 0 sees the same, if all do, and of several jobs of one rank the first; they tell it for all, unless mpiexec
  // ends them because somebody else was quicker.
  constexpr const char* places[] = {"PMI_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"};
  const bool one_of_several = size() == 1 && std::any_of(std::begin(places), std::end(places),
                                                         [](auto* place) { return number_in(place) > 0; });
  if (rank() > 0 || one_of_several) std::this_thread::sleep_for(std::chrono::seconds(1));
  if (one_of_several) leave(exit_codes::wrong_launcher);
  const bool has_mpi = !mpi_library().empty();
  const std::string remedy =
      has_mpi ? "start it by the mpiexec of that library: " + mpi_launcher() + " -n " + text(ranks) + " PROGRAM"
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
