#pragma once
// The processes of this job as MPI started them. Only mpi.cpp knows MPI; a build without it links mpi_absent.cpp.
#include <memory>
#include <string>
#include <vector>

#include "collectives/transports/job.h"

namespace weft {

class Processes {
 public:
  virtual ~Processes() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual bool allows_threads() const = 0;  // beside the one that calls MPI

  // The memory of the ranks of this node, and this rank's place in it; all have joined when it returns.
  virtual std::shared_ptr<Job> join(std::chrono::milliseconds deadline, const Job::Ending& ends) = 0;
  virtual int rank_on_node() const = 0;
  virtual bool on_one_node() const = 0;

  // Every process's text, by rank; the first 255 bytes of it.
  virtual std::vector<std::string> all_texts(Job& job, const std::string& mine) = 0;

  // The group of all processes, by messages only. A second one takes over from the first.
  virtual std::unique_ptr<Transport> connect(std::shared_ptr<Job> job) = 0;

  virtual void finalize() = 0;
  [[noreturn]] virtual void abort(int exit_code) = 0;  // ends all processes; mpiexec returns the exit code
};

// In a build without MPI: nothing.
std::unique_ptr<Processes> start_mpi(int& argc, char**& argv);
std::string mpi_library();   // "MPICH 4.0.2"
std::string mpi_launcher();  // the command that starts programs of this library

}  // namespace weft
