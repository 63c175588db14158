// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the exit code of a job means, and whether a restart may mend it. docs/faults.md has the codes of Weft's
// programs.
#include <cstdint>
#include <string>

namespace weft::launch {

enum class Remedy : uint8_t {
  none,     // all steps are done
  stop,     // somebody asked the job to stop
  person,   // a restart would fail in the same way
  restart,  // a restart may help
  ranks,    // as restart; if it happens again, fewer ranks may help
};

struct End {
  int first, last;  // exit codes; a signal counts as 128 plus its number
  Remedy remedy;
  const char* words;
};

// The exit code from a process's status as waitpid gives it.
int exit_code_of(int status);
// The entry of the table for an exit code from 0 to 255.
const End& end_of(int exit_code);
// "139, ended by a signal (Segmentation fault)"
std::string in_words(int exit_code);
// The table, for people.
std::string table_of_ends();

}  // namespace weft::launch
