#pragma once
// Barlow Twins: features of two views of a sample are to agree, and different features are to have nothing in common.
//
//   L = sum_i (C_ii - 1)^2 + lambda sum_(i != j) C_ij^2,   C_ij = the correlation of first's feature i and second's j
//
// C is that of the samples of all ranks: means, variances and the d x d products are sums over ranks (moments.h), so
// d^2 + 6 d numbers cross forward and one backward, whatever the size of the batch.
#include "collectives/communicator.h"
#include "engine/tape.h"

namespace weft {

struct BarlowTwinsOptions {
  double lambda = 5e-3;
  double epsilon = 1e-5;  // added to variances, which are divided by the number of samples
};

// `first` and `second` (b, d): this rank's share. The batch must have two samples at least.
Var barlow_twins(const Var& first, const Var& second, const BarlowTwinsOptions& options, Communicator& comm,
                 Site caller = Site::here());

}  // namespace weft
