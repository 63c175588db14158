// SPDX-License-Identifier: Apache-2.0
#include "weft/collectives/transports/mpi/mpi.h"

#include <mpi.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <thread>

#include "weft/collectives/transports/environment.h"
#include "weft/collectives/transports/job/ended_jobs.h"
#include "weft/collectives/transports/job/last_words.h"
#include "weft/collectives/transports/mpi/mpi_group.h"
#include "weft/collectives/transports/mpi/mpi_link.h"
#include "weft/collectives/transports/nodes/nodes.h"
#include "weft/collectives/transports/shared/shared_memory.h"

namespace weft {
namespace {

// MPI uses /dev/shm and open files, too. A library that finds too little of either may end all processes without a
// message.
void warn_of_little_room() {
  for (const char* variable : {"PMI_RANK", "OMPI_COMM_WORLD_RANK"})
    if (const char* rank = std::getenv(variable); rank && launcher_number_in(rank) > 0) return;
  struct rlimit files {};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < 64)
    write_report("weft: a process may have only " + text(files.rlim_cur) +
                 " open files, so MPI may fail to start; ulimit -n 1024 allows more\n");
  struct statvfs system {};
  if (statvfs("/dev/shm", &system) != 0) return;
  const uint64_t free_mebibytes = uint64_t{system.f_bavail} * system.f_frsize >> 20;
  if (free_mebibytes < 16)
    write_report("weft: /dev/shm has only " + text(free_mebibytes) +
                 " MiB left, so MPI may fail to start; a container gets more by --shm-size=1g\n");
}

// MPI is in the middle of a call, so MPI_Abort may not be called here.
void end_by_error(MPI_Comm*, int* error, ...) {
  std::array<char, MPI_MAX_ERROR_STRING> words{};
  int length = 0;
  MPI_Error_string(*error, words.data(), &length);
  end_within_call(exit_codes::peer_died,
                  "MPI reports an error; a rank or its node may be gone\n  " +
                      std::string(words.data(), static_cast<size_t>(length)),
                  abort_by_launcher);
}

// Groups take the handler over from the one that they are made from.
void end_by_errors() {
  MPI_Errhandler handler;
  MPI_Comm_create_errhandler(end_by_error, &handler);
  for (const MPI_Comm comm : {MPI_COMM_WORLD, MPI_COMM_SELF}) MPI_Comm_set_errhandler(comm, handler);
  MPI_Errhandler_free(&handler);
}

class MpiProcesses : public Processes {
 public:
  MpiProcesses(int& argc, char**& argv, bool from_threads) {
    warn_of_little_room();
    MPI_Init_thread(&argc, &argv, from_threads ? MPI_THREAD_MULTIPLE : MPI_THREAD_FUNNELED, &threads_);
    end_by_errors();
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  bool allows_threads() const override { return threads_ >= MPI_THREAD_FUNNELED; }
  int rank_on_node() const override { return rank_on_node_; }
  bool on_one_node() const override { return ranks_on_node_ == size_; }
  bool one_on_each_node() const override { return most_on_a_node_ == 1; }

  std::shared_ptr<Job> join(std::chrono::milliseconds deadline, const Job::EndHandler& end_handler) override {
    MPI_Comm node;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    MPI_Comm_rank(node, &rank_on_node_);
    MPI_Comm_size(node, &ranks_on_node_);
    const std::array<int64_t, 2> mine{ranks_on_node_, microseconds_now()};
    std::array<int64_t, 2> most{};
    MPI_Allreduce(mine.data(), most.data(), 2, MPI_INT64_T, MPI_MAX, MPI_COMM_WORLD);
    most_on_a_node_ = static_cast<int>(most[0]);
    std::shared_ptr<Job> job;
    std::array<char, 4096> path{};
    if (rank_on_node_ == 0) {
      job = Job::create(Memory::new_file(max_memory), ranks_on_node_, deadline);
      job->set_started(most[1]);
      SharedMemory::lay_out(*job, SharedMemory::AddressSpace::job_memory);
      std::strncpy(path.data(), job->memory().path().c_str(), path.size() - 1);
    }
    MPI_Bcast(path.data(), static_cast<int>(path.size()), MPI_BYTE, 0, node);
    if (!job) job = Job::open(Memory::existing_file(path.data()), deadline);
    job->end_handler = end_handler;
    job->join(rank_on_node_, rank_);
    MPI_Request barrier;
    MPI_Ibarrier(node, &barrier);
    finish(*job, rank_on_node_, barrier);
    MPI_Comm_free(&node);
    if (!on_one_node() && !std::getenv("WEFT_LINK"))
      link_ = measured_link(MPI_COMM_WORLD, rank_on_node_ == 0,
                            [&](MPI_Request& request) { weft::finish(*job, rank_on_node_, request); });
    return job;
  }

  std::vector<std::string> all_texts(Job& job, const std::string& mine) override {
    using Text = std::array<char, 256>;
    Text text{};
    mine.copy(text.data(), text.size() - 1);
    std::vector<Text> all(static_cast<size_t>(size_));
    MPI_Request request;
    MPI_Iallgather(text.data(), sizeof text, MPI_BYTE, all.data(), sizeof text, MPI_BYTE, MPI_COMM_WORLD, &request);
    finish(job, rank_on_node_, request);
    std::vector<std::string> texts;
    for (const Text& each : all) texts.emplace_back(each.data());
    return texts;
  }

  std::unique_ptr<Transport> connect(std::shared_ptr<Job> job) override {
    if (!world_) {
      auto comm = own_communicator(job->deadline());
      world_ = state_of(std::move(comm), 1, 0, std::move(job), rank_on_node_);
    }
    return std::make_unique<MpiGroup>(world_);
  }

  std::unique_ptr<Transport> connect_nodes(std::shared_ptr<Job> job) override {
    if (!nodes_) {
      std::unique_ptr<Transport> flat = connect(job);
      nodes_ =
          Nodes::join(std::move(flat),
                      SharedMemory::connect(job, rank_on_node_, SharedMemory::AddressSpace::job_memory), Site::here());
    }
    world_->job->send_meanwhile(rank_on_node_, [outbox = world_->outbox] { outbox->release_delivered(); });
    return std::make_unique<Nodes>(nodes_);
  }

  void run_ranks(int threads, const std::function<void(std::unique_ptr<Transport>)>& body,
                 std::chrono::milliseconds deadline, const Stuck& stuck) override {
    if (threads_ < MPI_THREAD_MULTIPLE)
      throw Fault(exit_codes::wrong_launcher, "wrong library: " + mpi_library() +
                                                  " does not let several threads of a process send messages, so each "
                                                  "process can be one rank only; leave out --ranks");
    if (threads > Wire::most_threads())
      throw Fault(exit_codes::usage, "--ranks " + text(threads) + ": " + mpi_library() + " allows at most " +
                                         text(Wire::most_threads()) + " ranks in each of several processes");
    const std::shared_ptr<const MPI_Comm> held = own_communicator(deadline);
    groups_of_threads_.resize(static_cast<size_t>(threads));
    const auto run = [&](std::unique_ptr<Transport> local) {
      const int thread = local->rank();
      const std::shared_ptr<Job> job = static_cast<SharedMemory&>(*local).job();
      const auto flat = state_of(held, threads, thread, job, thread);
      job->send_meanwhile(thread, [outbox = flat->outbox] { outbox->release_delivered(); });
      // After a failure, MPI may still be sending what the group keeps.
      auto& group = groups_of_threads_[static_cast<size_t>(thread)];
      group = Nodes::join(std::make_unique<MpiGroup>(flat), std::move(local), Site::here(), true);
      body(std::make_unique<Nodes>(group));
      Nodes(group).finalize(Site::here());
    };
    weft::run_ranks(threads, run, deadline, stuck, rank_ * threads);
    groups_of_threads_.clear();  // MPI frees what they have while it still can
  }

  // In MPI_Finalize over TCP (MPICH 4.0, UCX 1.13) a process waits until all to which it has sent have acknowledged,
  // and then acknowledges nothing more. So none may be through before all others have begun: each sends to each, and
  // nobody acknowledges before MPI_Finalize, because all stay out of MPI until none is left in it.
  void finalize() override {
    if (!on_one_node()) {
      send_to_all();
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    MPI_Finalize();
  }

 private:
  // One keeps Weft's messages apart from those that the program itself sends by MPI. Not by MPI_Comm_idup: in MPICH,
  // the MPI_Test that ends it may wait for other processes.
  static std::shared_ptr<const MPI_Comm> own_communicator(std::chrono::milliseconds deadline) {
    const auto limit = time_limit(deadline, "connecting the ranks (MPI_Comm_dup)", abort_mpi);
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    return Wire::hold(comm);
  }

  // A byte from each process to each. MPI_Alltoall may pass so little on through others; this sends it straight.
  void send_to_all() const {
    const auto all = static_cast<size_t>(size_);
    const std::vector<char> sent(all);
    std::vector<char> received(all);
    const std::vector<int> one(all, 1);
    std::vector<int> places(all);
    std::iota(places.begin(), places.end(), 0);
    MPI_Alltoallv(sent.data(), one.data(), places.data(), MPI_BYTE, received.data(), one.data(), places.data(),
                  MPI_BYTE, MPI_COMM_WORLD);
  }

  // Of the group of all ranks, which are `threads` of each process, for one of this process.
  std::shared_ptr<MpiGroup::State> state_of(std::shared_ptr<const MPI_Comm> comm, int threads, int thread,
                                            std::shared_ptr<Job> job, int rank_on_node) const {
    std::vector<Wire::Place> places;
    for (int r = 0; r < size_ * threads; ++r) places.push_back({r / threads, r % threads});
    return std::make_shared<MpiGroup::State>(
        Wire(std::move(comm), threads, std::move(places), rank_ * threads + thread), std::move(job), rank_on_node,
        std::make_shared<Outbox>(), link(), 0);
  }

  Link link() const {
    const char* given = std::getenv("WEFT_LINK");
    return given ? link_in("WEFT_LINK", given) : link_;
  }

  static constexpr size_t max_memory = size_t{64} << 30;

  int rank_ = 0, size_ = 1, rank_on_node_ = 0, ranks_on_node_ = 1, most_on_a_node_ = 1, threads_ = 0;
  Link link_ = in_memory_of_a_node;  // between nodes it is measured, unless WEFT_LINK tells
  std::shared_ptr<MpiGroup::State> world_;
  std::shared_ptr<Nodes::State> nodes_;
  std::vector<std::shared_ptr<Nodes::State>> groups_of_threads_;
};

}  // namespace

std::unique_ptr<Processes> start_mpi(int& argc, char**& argv, bool from_threads) {
  return std::make_unique<MpiProcesses>(argc, argv, from_threads);
}

void abort_mpi(int exit_code) {
  int begun = 0, ended = 0;
  MPI_Initialized(&begun);
  MPI_Finalized(&ended);
  if (!begun) abort_by_launcher(exit_code);
  if (begun && !ended) MPI_Abort(MPI_COMM_WORLD, exit_code);
}

// This is what MPI_Abort of MPICH sends, over a socket that mpiexec has made for this process.
void abort_by_launcher(int exit_code) {
  const char* const number = std::getenv("PMI_FD");
  struct stat about {};
  const int socket = number ? launcher_number_in(number) : 0;
  if (socket == 0 || fstat(socket, &about) != 0 || !S_ISSOCK(about.st_mode)) return;
  const std::string words = "cmd=abort exitcode=" + text(exit_code) + "\n";
  if (write(socket, words.data(), words.size()) > 0) std::this_thread::sleep_for(std::chrono::milliseconds(500));
}

std::string mpi_library() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> version{};
  int length = 0;
  MPI_Get_library_version(version.data(), &length);  // may be called before MPI_Init
  const std::string full(version.data());
  if (const size_t number = full.find("Version:"); full.starts_with("MPICH") && number != std::string::npos) {
    const size_t begin = full.find_first_not_of(" \t", number + 8);
    return "MPICH " + full.substr(begin, full.find_first_of(" \t\n", begin) - begin);
  }
  return full.substr(0, full.find_first_of(",\n"));
}

std::string mpi_launcher() { return mpi_library().starts_with("MPICH") ? "mpiexec.mpich" : "mpiexec.openmpi"; }
std::string mpi_srun() { return mpi_library().starts_with("MPICH") ? "srun --mpi=pmi2" : "srun --mpi=pmix"; }

// A process that Slurm has started without PMIx would be ended by Open MPI in MPI_Init, without the code and the remedy
// of check_launcher.
bool mpi_is_launched() {
  const auto any = [](std::initializer_list<const char*> variables) {
    return std::any_of(variables.begin(), variables.end(), [](const char* name) { return std::getenv(name); });
  };
  if (any({"PMIX_RANK", "OMPI_COMM_WORLD_SIZE"})) return true;
  return !mpi_library().starts_with("Open MPI") && any({"PMI_RANK", "PMI_SIZE", "SLURM_PROCID", "SLURM_NTASKS"});
}

}  // namespace weft
