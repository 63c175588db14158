#pragma once
// KoLeo, a differential entropy of the features by Kozachenko and Leonenko: every sample is pushed away from its
// nearest neighbours.
//
//   L = - mean_n mean_k log(|x_n - x_nk| + epsilon),   x_nk: the k-th nearest to x_n, all of unit length
//
// Neighbours are searched among the samples of all ranks, whose features each rank gathers: B x d numbers forward and
// as many backward, since the gradient goes to the neighbour as well. Which it is has none.
#include "collectives/communicator.h"
#include "engine/tape.h"

namespace weft {

enum class Neighbours : uint8_t {
  of_all_ranks,
  of_own_rank  // another loss for every division of the batch, and nothing crosses ranks but counts
};

struct KoleoOptions {
  int64_t neighbours = 1;
  double epsilon = 1e-8;
  Neighbours among = Neighbours::of_all_ranks;
};

// `x` (b, d) need not be normalized: this rank's share. Samples that have not so many others to choose from count
// nothing, so the loss of a single sample is zero. Equal features have no direction to move apart: zero gradients.
Var koleo(const Var& x, const KoleoOptions& options, Communicator& comm, Site caller = Site::here());

}  // namespace weft
