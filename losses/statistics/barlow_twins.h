// SPDX-License-Identifier: Apache-2.0
#pragma once
// Barlow Twins: makes each feature agree between two views of a sample, and different features uncorrelated.
//
//   L = sum_i (C_ii - 1)^2 + lambda sum_(i != j) C_ij^2,   C_ij = the correlation of first's feature i and second's j
//
// C is computed over the samples of all ranks. Means, variances and the d x d products are sums over ranks (moments.h),
// so d^2 + 6 d numbers cross forward and one backward, independent of the batch size.
#include "weft/collectives/communicator.h"
#include "weft/engine/tape/tape.h"

namespace weft {

struct BarlowTwinsOptions {
  double lambda = 5e-3;
  double epsilon = 1e-5;  // added to variances, which are divided by the number of samples
};

// Returns this rank's share. `first` and `second` are (b, d). The whole batch must have at least two samples.
Var barlow_twins(const Var& first, const Var& second, const BarlowTwinsOptions& options, Communicator& comm,
                 Site caller = Site::here());

}  // namespace weft
