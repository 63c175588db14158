// SPDX-License-Identifier: Apache-2.0
#pragma once
// The record of the last job that has ended on the nodes on which a launcher has started this program.

namespace weft {

// Rank 0 prints so many calls of each rank of that job. Returns the exit code.
int print_last_job(int argc, char** argv, int calls);

}  // namespace weft
