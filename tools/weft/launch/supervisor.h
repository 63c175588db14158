// SPDX-License-Identifier: Apache-2.0
#pragma once
// Starts a job, and starts it again from its last checkpoint if it ends in a way that a restart may mend.
#include "tools/weft/launch/command_words.h"

namespace weft::launch {

struct Supervision {
  Words program;
  Launcher launcher;
  int64_t ranks = 0;          // 0: as many as the launcher takes
  int64_t restarts = 10;      // at most
  int64_t shrink = 0;         // ranks to leave out when ranks are lost again; 0: none
  int64_t same_step = 2;      // attempts in a row that end at one step, before it gives up
  double pause = 60;          // seconds between attempts at most
  double stall_minutes = 30;  // without a step, a checkpoint or output, before a job is ended; 0: any
};

// Ended before a time limit, to be started again: the exit code after SIGUSR1 (EX_TEMPFAIL of sysexits.h).
constexpr int to_be_started_again = 75;

// Returns the exit code: that of the last attempt, or 128 plus the number of the signal that asked to stop.
int supervise(const Supervision& wanted);

}  // namespace weft::launch
