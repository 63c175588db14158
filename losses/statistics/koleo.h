// SPDX-License-Identifier: Apache-2.0
#pragma once
// KoLeo, the estimator of differential entropy by Kozachenko and Leonenko: pushes every sample away from its nearest
// neighbours, so that features spread evenly over the unit sphere.
//
//   L = - mean_n mean_k log(|x_n - x_nk| + epsilon),   x_nk: the k-th nearest to x_n, all of unit length
//
// Neighbours are searched among the samples of all ranks. Each rank gathers all features: B x d numbers cross forward,
// and as many backward, since neighbours receive gradients, too. The choice of neighbours has no gradient. In f32
// another neighbour may be chosen if its squared distance is the same up to 2^-22 of the variance of the unit vectors.
#include "weft/collectives/communicator.h"
#include "weft/engine/tape/tape.h"

namespace weft {

enum class Neighbours : uint8_t {
  of_all_ranks,
  of_own_rank  // only counts cross ranks, but the loss depends on how the batch is divided
};

struct KoleoOptions {
  int64_t neighbours = 1;
  double epsilon = 1e-8;
  Neighbours among = Neighbours::of_all_ranks;
};

// Returns this rank's share. `x` (b, d) need not be normalized. Samples with fewer than `neighbours` others do not
// count, so the loss of a single sample is zero. Two equal features give zero gradients, since their distance has no
// direction.
Var koleo(const Var& x, const KoleoOptions& options, Communicator& comm, Site caller = Site::here());

}  // namespace weft
