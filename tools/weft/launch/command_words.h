// SPDX-License-Identifier: Apache-2.0
#pragma once
// The words of a command line: what a training program is told, and what it is told when it starts again.
#include <filesystem>
#include <string>
#include <vector>

namespace weft::launch {

using Words = std::vector<std::string>;

enum class Kind : uint8_t { mpiexec, srun, threads };

struct Launcher {
  Kind kind = Kind::mpiexec;
  Words words;  // none for threads
};
// From "threads", "srun --mpi=pmi2", "mpiexec.mpich -f hosts". Throws Error if it is empty.
Launcher launcher_from(const std::string& text);

// What a program's options say of its run.
struct RunOptions {
  std::filesystem::path out;
  std::string resume = "unfinished";
  bool fresh_by_file = false;  // the file of --config says so
};
// Throws Error if the file of --config cannot be read.
RunOptions run_options(const Words& program);

// The whole command. `ranks` 0 leaves their number to the launcher.
Words whole_command(const Launcher& launcher, int64_t ranks, const Words& program);

// A program's words with another --resume, and without --fresh.
Words resumed(const Words& program, const RunOptions& options, const std::string& resume);

}  // namespace weft::launch
