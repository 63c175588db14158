// SPDX-License-Identifier: Apache-2.0
#pragma once
// The files of jobs that have ended on this machine.
#include <memory>

#include "weft/collectives/transports/job/job.h"

namespace weft {

int64_t microseconds_now();  // since 1970

// A copy of the last job of several processes that has ended and left its file; null if there is none. The next job
// removes the file.
std::shared_ptr<Job> last_ended_job();

// Records how a process of a living job that began since `began` has ended.
void record_end(int process, int status, int64_t began);

// Appends an exit code, 128 plus its number for a signal, to the file that WEFT_ENDS names, if it is on this node. Some
// launchers lose how a process has ended.
void tell_supervisor(int exit_code);

}  // namespace weft
