// SPDX-License-Identifier: Apache-2.0
#pragma once
// From a command line to running ranks: one rank, several threads of this process (--ranks), or one rank per process of
// mpiexec. Every process ends with the same exit code (docs/faults.md).
//
//   int main(int argc, char** argv) {
//     ...
//     return weft::launch(line, argc, argv, [&](const weft::Launch& rank) { train(rank, settings); });
//   }
#include <functional>

#include "apps/shared/launch/options.h"
#include "weft/collectives/checks/tape_table.h"
#include "weft/collectives/checks/traffic.h"

namespace weft {

class Output;
class RunFolder;

// What the program gets on each rank.
struct Launch {
  Communicator& comm;
  Traffic& traffic;         // of comm and of groups that are split from it
  Timeline* timeline;       // of --trace; null without
  TapeRecord* tapes;        // of --record-step; null without
  Device device;            // for this rank's tensors
  std::string description;  // "shared memory (2 ranks), MPICH 4.0.2, cpu (v4)"
  RunFolder* folder;        // of --out, on rank 0; null on other ranks and in a dry run
  Output& output;           // of this process
  const CommandLine& line;  // as it was parsed
};

// Parses, compares the options of all processes, and calls `body` on every rank.
int launch(CommandLine& line, int argc, char** argv, const std::function<void(const Launch&)>& body);

// The exception that is being handled, as a Fault with its exit code. Thrown as a Fault, a failure of one rank's file
// work ends the job on every rank with that code.
Fault current_fault();

// Does file work of one rank, and throws a failure as such a Fault.
template <class F> auto alone(F f) {
  try {
    return f();
  } catch (...) {
    throw current_fault();
  }
}

// Whether this process has received Ctrl-C, SIGTERM, SIGHUP or SIGUSR1, which schedulers send some time before a limit.
// Ranks do not receive it at the same time, so they must agree before they act on it. From the first call of
// stop_requested until stop_at_once, a first signal only sets this flag. Before, after, and if it is the second, a
// signal ends the job at once. The exit code is 128 plus the first one's number; if only other processes have received
// one, it is that of SIGTERM.
bool stop_requested();
void stop_with_others();  // when the ranks have agreed to stop
void stop_at_once();

}  // namespace weft
