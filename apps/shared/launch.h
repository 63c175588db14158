#pragma once
// From a command line to running ranks: one, several that are threads of this process (--ranks), or one for each
// process that mpiexec has started. However it ends, every process leaves with the same exit code (docs/faults.md).
//
//   int main(int argc, char** argv) {
//     ...
//     return weft::launch(line, argc, argv, [&](const weft::Launch& rank) { train(rank, settings); });
//   }
#include <functional>

#include "apps/shared/options.h"
#include "collectives/traffic.h"

namespace weft {

class RunFolder;

// What a rank's part of the program gets.
struct Launch {
  Communicator& comm;
  Traffic& traffic;         // of comm and of what is split from it
  Device device;            // for this rank's tensors
  std::string description;  // "shared memory (2 ranks), MPICH 4.0.2, cpu (v4)"
  RunFolder* folder;        // --out, on rank 0, unless it is a dry run
};

// Parses, compares what the ranks were asked for, and calls `body` on every rank.
int launch(CommandLine& line, int argc, char** argv, const std::function<void(const Launch&)>& body);

// The exception that is being handled, with its exit code. Where one rank works for all, as with files, thrown as this
// it ends the job by that code, whoever else notices.
Fault current_fault();

// Whether Ctrl-C, SIGTERM or SIGHUP has come to this process. The ranks of a group do not see it at the same time, so
// they agree on it before they act. Whoever asks will act on it, so from the first call on until stop_at_once a signal
// waits for that. Before and after, and if it is the second, a signal ends the job at once, by 128 and its number.
bool stop_requested();
void stop_at_once();

}  // namespace weft
