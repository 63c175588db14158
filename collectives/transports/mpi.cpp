#include "collectives/transports/mpi.h"

#include <mpi.h>

#include <array>
#include <cstring>

#include "collectives/transports/mpi_group.h"
#include "collectives/transports/shared_memory.h"

namespace weft {
namespace {

class MpiProcesses : public Processes {
 public:
  MpiProcesses(int& argc, char**& argv) {
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &threads_);  // of a program's threads, this one calls MPI
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  bool allows_threads() const override { return threads_ >= MPI_THREAD_FUNNELED; }
  int rank_on_node() const override { return rank_on_node_; }
  bool on_one_node() const override { return ranks_on_node_ == size_; }

  std::shared_ptr<Job> join(std::chrono::milliseconds deadline, const Job::Ending& ends) override {
    MPI_Comm node;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    MPI_Comm_rank(node, &rank_on_node_);
    MPI_Comm_size(node, &ranks_on_node_);
    std::shared_ptr<Job> job;
    std::array<char, 4096> path{};
    if (rank_on_node_ == 0) {
      job = Job::create(Memory::new_file(at_most), ranks_on_node_, deadline);
      SharedMemory::lay_out(*job, SharedMemory::Sight::the_job);
      std::strncpy(path.data(), job->memory().path().c_str(), path.size() - 1);
    }
    MPI_Bcast(path.data(), static_cast<int>(path.size()), MPI_BYTE, 0, node);
    if (!job) job = Job::open(Memory::existing_file(path.data()), deadline);
    job->ends = ends;
    job->join(rank_on_node_, rank_);
    MPI_Request everybody;
    MPI_Ibarrier(node, &everybody);
    finish(*job, rank_on_node_, everybody);
    MPI_Comm_free(&node);
    return job;
  }

  std::vector<std::string> all_texts(Job& job, const std::string& mine) override {
    using Words = std::array<char, 256>;
    Words words{};
    mine.copy(words.data(), words.size() - 1);
    std::vector<Words> all(static_cast<size_t>(size_));
    MPI_Request request;
    MPI_Iallgather(words.data(), sizeof words, MPI_BYTE, all.data(), sizeof words, MPI_BYTE, MPI_COMM_WORLD, &request);
    finish(job, rank_on_node_, request);
    std::vector<std::string> texts;
    for (const Words& each : all) texts.emplace_back(each.data());
    return texts;
  }

  std::unique_ptr<Transport> connect(std::shared_ptr<Job> job) override {
    if (!world_) {
      MPI_Comm comm;
      MPI_Request request;
      MPI_Comm_idup(MPI_COMM_WORLD, &comm,
                    &request);  // whatever the program does with MPI itself stays apart from this
      finish(*job, rank_on_node_, request);
      world_ = std::make_shared<MpiGroup::State>(comm, std::move(job), rank_on_node_, std::make_shared<Outbox>(), 0);
    }
    return std::make_unique<MpiGroup>(world_);
  }

  void finalize() override { MPI_Finalize(); }
  void abort(int exit_code) override {
    MPI_Abort(MPI_COMM_WORLD, exit_code);
    std::_Exit(exit_code);
  }

 private:
  static constexpr size_t at_most = size_t{64} << 30;

  int rank_ = 0, size_ = 1, rank_on_node_ = 0, ranks_on_node_ = 1, threads_ = 0;
  std::shared_ptr<MpiGroup::State> world_;
};

}  // namespace

std::unique_ptr<Processes> start_mpi(int& argc, char**& argv) { return std::make_unique<MpiProcesses>(argc, argv); }

std::string mpi_library() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> version{};
  int length = 0;
  MPI_Get_library_version(version.data(), &length);  // may be asked before MPI is started
  const std::string full(version.data());
  if (const size_t number = full.find("Version:"); full.starts_with("MPICH") && number != std::string::npos) {
    const size_t begin = full.find_first_not_of(" \t", number + 8);
    return "MPICH " + full.substr(begin, full.find_first_of(" \t\n", begin) - begin);
  }
  return full.substr(0, full.find_first_of(",\n"));
}

std::string mpi_launcher() { return mpi_library().starts_with("MPICH") ? "mpiexec.mpich" : "mpiexec.openmpi"; }

}  // namespace weft
