// SPDX-License-Identifier: Apache-2.0
#include "apps/shared/launch/launch.h"

#include <semaphore.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <set>
#include <thread>

#include "apps/shared/launch/cores.h"
#include "apps/shared/report/trace_file.h"
#include "apps/shared/run/op_times.h"
#include "apps/shared/run/output.h"
#include "apps/shared/run/run_folder.h"
#include "weft/collectives/busy.h"
#include "weft/collectives/checks/agreement.h"
#include "weft/collectives/transports/factory.h"
#include "weft/collectives/transports/nccl/nccl.h"
#include "weft/data/files/durable_file.h"
#include "weft/data/idx.h"
#include "weft/engine/kernels/cpu_kinds.h"

namespace weft {
namespace {

using Ending = CommandLine::Ending;

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

// A signal handler gets nothing but the signal's number, so it needs globals.
std::atomic<int> stop{0};                                      // the first signal received
std::atomic<std::chrono::steady_clock::time_point> stop_time;  // when
std::atomic<bool> gentle{false}, alone{true};
sem_t at_once;
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free &&
              decltype(stop_time)::is_always_lock_free);

void remember(int signal) {
  if (stop != 0) return;
  stop_time = std::chrono::steady_clock::now();
  stop = signal;
}

constexpr char stopped_at_once[] =
    "stopped at once by a signal; the checkpoints of a training are whole, and its command goes on from the latest\n";

void leave_at_once(int signal) {
  if (!alone) {
    sem_post(&at_once);
    return;
  }
  const ssize_t written = write(STDERR_FILENO, stopped_at_once, sizeof stopped_at_once - 1);
  (void)written;  // nobody to tell
  _exit(128 + signal);
}

// Several processes must end together, and a signal handler cannot end the job. It wakes this thread, which does.
class Leaver {
 public:
  explicit Leaver(Session& session) {
    if (session.size() == 1) return;
    sem_init(&at_once, 0, 0);
    thread_ = std::thread([this, &session] {
      while (sem_wait(&at_once) != 0) continue;  // interrupted
      if (!over_) session.end(128 + stop, first_line(stopped_at_once));
    });
    alone = false;
  }
  Leaver(const Leaver&) = delete;
  ~Leaver() {
    if (!thread_.joinable()) return;
    alone = over_ = true;
    sem_post(&at_once);
    thread_.join();
  }

 private:
  std::atomic<bool> over_{false};
  std::thread thread_;
};

// Whether this process was started under nohup. UCX, which MPI may bring along, takes SIGHUP for itself and opens files
// as soon as it is loaded, so this is asked, and the standard streams are guarded, before any library is initialized.
constinit bool ignores_hangup = false;
void prepare(int, char**, char**) {
  struct sigaction now {};
  ignores_hangup = sigaction(SIGHUP, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
  guard_standard_streams();
}
[[gnu::section(".preinit_array"), gnu::used]] void (*const before_libraries)(int, char**, char**) = prepare;

// Schedulers signal all processes, of which some pass the signal on: what comes within this time is one request.
constexpr std::chrono::milliseconds one_request(250);

void be_asked(int signal) {
  const bool again = stop != 0 && std::chrono::steady_clock::now() - stop_time.load() > one_request;
  remember(signal);
  if (!gentle || again) leave_at_once(signal);
}

void handle_signals() {
  std::signal(SIGXFSZ, SIG_IGN);  // `write` reports a file over the size limit
  struct sigaction action {};
  action.sa_handler = be_asked;
  action.sa_flags = SA_RESTART;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) sigaction(signal, &action, nullptr);
  if (ignores_hangup) std::signal(SIGHUP, SIG_IGN);
}

void print(int exit_code, const std::string& text) {
  const ssize_t written = write(exit_code == 0 ? STDOUT_FILENO : STDERR_FILENO, text.data(), text.size());
  (void)written;  // nobody to tell
}

// The result of parsing on all processes, the same on each: the first help text or mistake, or a mistake if their
// options differ.
std::optional<Ending> agree(const std::optional<Ending>& mine, const std::string& config, Session& session) {
  Communicator comm(session.connect_hosts());
  const Site site = Site::here("command line");
  const std::vector<std::string> texts = all_texts(mine ? mine->text : "", comm, site);
  const std::vector<std::string> codes = all_texts(text(mine ? mine->exit_code : -1), comm, site);
  const std::vector<std::string> configs = all_texts(config, comm, site);
  for (size_t r = 0; r < codes.size(); ++r)
    if (codes[r] != "-1") return Ending{std::stoi(codes[r]), texts[r]};
  if (const auto difference = first_different_line("were given different options", configs))
    return Ending{exit_codes::configuration_differs, "error: " + *difference + "\n"};
  return std::nullopt;
}

// Names all kinds of device that ranks run on: "cpu (v3, v4)".
std::string text_of(Device device, Communicator& comm) {
  const std::string own = device == Device::cuda ? backend(device).description() : chosen_cpu_kind().name;
  const std::vector<std::string> all = all_texts(own, comm, Site::here("kinds of device"));
  std::string names;
  for (const std::string& kind : std::set(all.begin(), all.end())) names += (names.empty() ? "" : ", ") + kind;
  return text(device) + " (" + names + ")";
}

void write_trace_of(const Launch& rank, const std::string& place) {
  const std::vector<Timeline::Events> ranks = gather_timelines(*rank.timeline, rank.comm);
  const Busy busy(rank.comm, "writes " + place);
  if (rank.comm.rank().value == 0) write_trace(place, rank.description, ranks);
}

void run_rank(std::unique_ptr<Transport> transport, const CommandLine& line, Device device,
              const std::string& description, RunFolder* folder, Output& output,
              const std::function<void(const Launch&)>& body) {
  Traffic traffic;
  Timeline timeline;
  TapeRecord tapes;
  const std::string& trace = line.options().trace;
  Timeline* const noted = trace.empty() ? nullptr : &timeline;
  Communicator comm(counted(std::move(transport), traffic, noted),
                    line.options().fast_reductions ? Reductions::fast : Reductions::ordered);
  RunFolder* const own = comm.rank().value == 0 ? folder : nullptr;
  TapeRecord* const recorded = line.options().record_step > 0 ? &tapes : nullptr;
  if (noted) tapes.observe = [&](Tape& tape) { tape.own(std::make_unique<OpTimes>(tape, timeline)); };
  const std::string about = description + ", " + text_of(device, comm);
  const Launch launch{comm, traffic, noted, recorded, device, about, own, output, line};
  try {
    body(launch);
    if (noted) write_trace_of(launch, trace);
  } catch (...) {  // here, where its exit code is known: a report about other ranks may need it
    throw current_fault();
  }
}

// The number of ranks of each process: --ranks, else one if a launcher has started the processes, else one per core, or
// one on a card.
int64_t threads_of(const Session& session, const Options& options, Device device) {
  if (options.ranks > 0) return options.ranks;
  return session.processes() || device != Device::cpu ? 1 : physical_cores();
}

void run(Session& session, const CommandLine& line, RunFolder* folder, Output& output,
         const std::function<void(const Launch&)>& body) {
  const Options& options = line.options();
  const Device device = options.chosen_device();
  if (options.tf32) backend(device).allow_tf32(true);
  const auto threads = static_cast<int>(threads_of(session, options, device));
  if (threads > 1) {
    const auto rank = [&](std::unique_ptr<Transport> transport) {
      if (device == Device::cuda) {
        const int place = session.rank_on_node() * threads + transport->rank() % threads;
        take_card(place);
        transport = connect_cards(std::move(transport), place, session);
      }
      const std::string description = session.size() > 1 ? weft::description(*transport) : transport->description();
      run_rank(std::move(transport), line, device, description, folder, output, body);
    };
    return session.run_ranks(threads, rank);
  }
  auto transport = device == Device::cuda ? connect(session) : session.connect_hosts();
  const std::string description = weft::description(*transport);
  run_rank(std::move(transport), line, device, description, folder, output, body);
}

}  // namespace

Fault current_fault() {
  try {
    throw;
  } catch (const WrongOption& error) {
    return {exit_codes::usage, error.what()};
  } catch (const MissingInput& error) {
    return {exit_codes::missing_input, error.what()};
  } catch (const MalformedInput& error) {
    return {exit_codes::malformed_input, error.what()};
  } catch (const OutputFailure& error) {
    return {exit_codes::io, error.what()};
  } catch (const NotFinite& error) {
    return {exit_codes::non_finite, error.what()};
  } catch (const std::filesystem::filesystem_error& error) {
    return {exit_codes::io, error.path1().string() + ": " + error.code().message()};
  } catch (...) {
    return fault_being_handled();
  }
}

bool stop_requested() {
  gentle = true;
  return stop != 0;
}

void stop_with_others() { remember(SIGTERM); }

void stop_at_once() {
  gentle = false;
  if (const int signal = stop) leave_at_once(signal);
}

int launch(CommandLine& line, int argc, char** argv, const std::function<void(const Launch&)>& body) {
  // Before MPI starts, nothing may fail on one rank alone: the others would wait for it.
  std::optional<Ending> ending = line.parse(argc, argv);
  const Options& options = line.options();
  SessionOptions session_options;
  session_options.ranks_are_threads = options.ranks > 1;
  session_options.deadline = std::chrono::milliseconds(static_cast<int64_t>(options.timeout * 1000));
  std::signal(SIGUSR1, be_asked);  // MPICH takes it when MPI starts, and calls what was there before
  Output output(STDOUT_FILENO);    // outlives the session, whose other processes do not wait for a terminal
  Session session(argc, argv, session_options);
  try {
    if (session.size() > 1) ending = agree(ending, line.config(), session);
    if (ending) {
      if (session.rank() == 0) print(ending->exit_code, ending->text);
      return ending->exit_code;
    }
    const Leaver leaver(session);
    handle_signals();
    // Checks files before anything that takes time.
    std::optional<RunFolder> folder;
    if (session.rank() == 0 && options.has_run && !options.dry_run) folder.emplace(options.out);
    if (session.rank() == 0 && !options.trace.empty()) expect_room_for_trace(options.trace);
    if (session.rank() == 0 && options.has_run) expect_checkpoint(options.begins_at(), options.out);
    run(session, line, folder ? &*folder : nullptr, output, body);
    if (output.error()) throw OutputFailure(std::string("standard output: ") + std::strerror(output.error()));
    return stop ? 128 + stop : 0;
  } catch (...) {
    const Fault fault = current_fault();
    if (session.size() > 1) session.end(fault.exit_code, fault.what());
    print(fault.exit_code, "error: " + std::string(fault.what()) + "\n");
    return fault.exit_code;
  }
}

}  // namespace weft
