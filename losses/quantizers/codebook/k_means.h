// SPDX-License-Identifier: Apache-2.0
#pragma once
// k-means clustering of the tokens of all ranks, which gives a codebook its initial codes. The centers are
// bit-identical on every rank and for every number of ranks.
#include "weft/collectives/communicator.h"

namespace weft {

struct Clusters {
  Tensor centers;  // (codes, dim)
  Tensor counts;   // (codes): the number of tokens of each center, on all ranks
};

// Starts from tokens chosen by their global numbers, then moves each center to the mean of the tokens nearest to it,
// `iterations` times; a center without tokens stays. With `unit`, centers are normalized to length 1. The result is
// empty if no rank has a token. Each iteration costs an all_reduce.
Clusters k_means(const Tensor& tokens, int64_t codes, int64_t iterations, bool unit, Communicator& comm,
                 const Random& key, Site site = Site::here());

}  // namespace weft
