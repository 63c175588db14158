// SPDX-License-Identifier: Apache-2.0
#pragma once
// NT-Xent, the loss of SimCLR: the cross entropy of classifying, for every view of a sample, which of all other views
// in the batch shows the same sample. With z the 2B normalized features of all ranks and i' the counterpart of i:
//
//   L = 1/2B sum_i (log sum_(j != i) exp(z_i.z_j / temperature)  -  z_i.z_i' / temperature)
//
// Each rank computes the terms i of its own features. The features of all ranks cross once, by the schedule
// (key_schedule.h). DirectCLR is this loss applied to slice(first, 1, 0, d0) and slice(second, 1, 0, d0).
#include "weft/losses/common/key_schedule.h"

namespace weft {

struct NtXentOptions {
  double temperature = 0.5;
  KeySchedule schedule = {};
  Var negatives = {};  // additional ones, normalized and equal on all ranks, such as those of a MemoryBank
};

// Returns this rank's share. Features are (b, d) and need not be normalized.
Var nt_xent(const Var& first, const Var& second, const NtXentOptions& options, Communicator& comm,
            Site caller = Site::here());

}  // namespace weft
