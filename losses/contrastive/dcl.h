// SPDX-License-Identifier: Apache-2.0
#pragma once
// Decoupled contrastive learning: NT-Xent without the positive pair in the denominator, so that easy positives do not
// weaken the gradient of the negatives. With z the 2B normalized features of all ranks and i' the counterpart of i, the
// other view of the same sample:
//
//   L = 1/2B sum_i (log sum_(j != i, i') exp(z_i.z_j / temperature)  -  w_i z_i.z_i' / temperature)
//
// w is 1 (DCL), or larger for pairs that are less alike (DCLW). The weights are constants without a gradient:
//
//   w_i = 2 - exp(z_i.z_i' / sigma) / mean_j exp(z_j.z_j' / sigma)
//
// The mean is over the pairs of all ranks, or over this rank's only, in which case the loss depends on how the batch is
// divided. Features cross ranks by the schedule (key_schedule.h); weights over all ranks add one all_reduce of
// log-sum-exps.
#include "weft/losses/common/key_schedule.h"

namespace weft {

enum class DclWeights : uint8_t { none, of_batch, of_rank };

struct DclOptions {
  double temperature = 0.1;
  DclWeights weights = DclWeights::none;
  double sigma = 0.5;
  KeySchedule schedule = {};
};

// Returns this rank's share. `first` and `second` are features (b, d) of two views and need not be normalized. A batch
// of a single sample has no negatives, and its loss is zero.
Var dcl(const Var& first, const Var& second, const DclOptions& options, Communicator& comm, Site caller = Site::here());

}  // namespace weft
