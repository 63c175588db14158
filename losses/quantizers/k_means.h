#pragma once
// k-means over the tokens of all ranks: where a codebook begins.
#include "collectives/communicator.h"

namespace weft {

struct Clusters {
  Tensor centers;  // (codes, dim)
  Tensor counts;   // (codes): tokens of all ranks
};

// Begins with tokens chosen by their global numbers, then moves each center to the mean of the tokens nearest to it,
// `iterations` times; one without tokens stays. With `unit` centers are brought to length 1. The result has the same
// bits on every rank and for every number of ranks; empty if no rank has a token. Each iteration costs an all_reduce.
Clusters k_means(const Tensor& tokens, int64_t codes, int64_t iterations, bool unit, Communicator& comm,
                 const Random& key, Site site = Site::here());

}  // namespace weft
