// SPDX-License-Identifier: Apache-2.0
#include "tools/weft/launch/ends.h"

#include <sys/wait.h>

#include <csignal>
#include <cstring>

#include "weft/collectives/fault.h"

namespace weft::launch {
namespace {

namespace codes = exit_codes;

// The first entry that has a code counts. Codes that are no program's of Weft are those of launchers. MPICH's gives the
// numbers of signals as they are, and combines them by OR if several ranks have ended by one.
constexpr End ends[] = {
    {0, 0, Remedy::none, "success"},
    {codes::usage, codes::usage, Remedy::person, "a wrong option, or another run has the folder"},
    {codes::malformed_input, codes::malformed_input, Remedy::person,
     "a malformed file, or a checkpoint of another run"},
    {codes::missing_input, codes::missing_input, Remedy::person, "a missing file"},
    {codes::exception, codes::exception, Remedy::person, "a rank's program threw an exception"},
    {codes::premature_exit, codes::premature_exit, Remedy::restart, "a rank ended before the others"},
    {codes::unwinding, codes::unwinding, Remedy::person, "an exception escaped from the session"},
    {codes::io, codes::io, Remedy::restart, "a file could not be read or written"},
    {codes::configuration_differs, codes::configuration_differs, Remedy::person,
     "ranks have different options or data"},
    {codes::deadline, codes::deadline, Remedy::ranks, "a rank waited longer than the deadline"},
    {codes::mismatch, codes::mismatch, Remedy::person, "ranks made different calls"},
    {codes::non_finite, codes::non_finite, Remedy::person, "a number is not finite"},
    {codes::out_of_memory, codes::out_of_memory, Remedy::person, "memory ran out"},
    {codes::wrong_launcher, codes::wrong_launcher, Remedy::person, "a wrong launcher, or a wrong number of ranks"},
    {codes::collapsed, codes::collapsed, Remedy::person, "the network has collapsed"},
    {codes::peer_died, codes::peer_died, Remedy::ranks, "MPI or NCCL reports an error"},
    {126, 127, Remedy::person, "the command cannot be started"},
    {128 + SIGHUP, 128 + SIGINT, Remedy::stop, "asked to stop"},
    {128 + SIGTERM, 128 + SIGTERM, Remedy::stop, "asked to stop"},
    {128 + SIGUSR1, 128 + SIGUSR1, Remedy::stop, "asked to stop"},
    {131, 192, Remedy::ranks, "ended by a signal"},
    {1, 255, Remedy::ranks, "a rank, a node or the launcher was lost"},
};

const char* text(Remedy remedy) {
  switch (remedy) {
    case Remedy::none: return "ends";
    case Remedy::stop: return "ends, since it was asked to";
    case Remedy::person: return "gives up";
    case Remedy::restart: return "starts again";
    default: return "starts again; the next time on fewer ranks if --shrink is given";
  }
}

}  // namespace

int exit_code_of(int status) { return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status); }

const End& end_of(int exit_code) {
  const End* end = ends;
  while (exit_code < end->first || exit_code > end->last) ++end;
  return *end;
}

std::string in_words(int exit_code) {
  const std::string words = std::to_string(exit_code) + ", " + end_of(exit_code).words;
  return exit_code > 128 && exit_code <= 192 ? words + " (" + strsignal(exit_code - 128) + ")" : words;
}

std::string table_of_ends() {
  std::string table;
  for (const End& end : ends) {
    const std::string last = end.last == 255 ? "other" : std::to_string(end.first);
    const bool several = end.last != 255 && end.last != end.first;
    const std::string codes = last + (several ? "-" + std::to_string(end.last) : "");
    table += "  " + codes + std::string(10 - codes.size(), ' ') + end.words + ": " + text(end.remedy) + "\n";
  }
  return table;
}

}  // namespace weft::launch
