// SPDX-License-Identifier: Apache-2.0
#pragma once
// The processes of this job, which MPI has started. A build without MPI links mpi_absent.cpp.
#include <memory>
#include <string>
#include <vector>

#include "weft/collectives/transports/job/job.h"

namespace weft {

class Processes {
 public:
  virtual ~Processes() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual bool allows_threads() const = 0;  // besides the one that calls MPI

  // Joins the job of the ranks of this node, and returns when all of them have joined.
  virtual std::shared_ptr<Job> join(std::chrono::milliseconds deadline, const Job::EndHandler& end_handler) = 0;
  virtual int rank_on_node() const = 0;
  virtual bool on_one_node() const = 0;
  virtual bool one_on_each_node() const = 0;

  // The texts of all processes, in rank order, each cut after 255 bytes.
  virtual std::vector<std::string> all_texts(Job& job, const std::string& mine) = 0;

  // The group of all processes, connected by messages only. A second call returns another view of the same group.
  virtual std::unique_ptr<Transport> connect(std::shared_ptr<Job> job) = 0;
  // The same, whose ranks on a node share memory and the network.
  virtual std::unique_ptr<Transport> connect_nodes(std::shared_ptr<Job> job) = 0;
  // Calls `body` on ranks that are threads, as many of each process; see run_ranks.h. Needs a library that threads may
  // call at the same time.
  virtual void run_ranks(int threads, const std::function<void(std::unique_ptr<Transport>)>& body,
                         std::chrono::milliseconds deadline, const Stuck& stuck) = 0;

  virtual void finalize() = 0;
};

// Ends all processes, if MPI has started: mpiexec returns the exit code. For any thread.
void abort_mpi(int exit_code);
// The same without MPI, which cannot do it while it starts and ends; only if the launcher is MPICH's.
void abort_by_launcher(int exit_code);

// In a build without MPI these return nothing. `from_threads`: whether several threads are to call MPI.
std::unique_ptr<Processes> start_mpi(int& argc, char**& argv, bool from_threads);
std::string mpi_library();   // "MPICH 4.0.2"
std::string mpi_launcher();  // the command that starts programs of this library: "mpiexec.mpich"
std::string mpi_srun();      // Slurm's command in its place: "srun --mpi=pmi2"
bool mpi_is_launched();      // whether a launcher has set what the library needs to know of its job

}  // namespace weft
