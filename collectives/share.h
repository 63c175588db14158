#pragma once
// The two ends of every loss: a rank returns its share of the whole, and the whole is reported.
#include "collectives/communicator.h"
#include "engine/tape.h"

namespace weft {

// This rank's part of a mean over `total` samples, or tokens, of all ranks and micro-batches: of nothing at all it is
// zero, with zero gradients.
Var share(const Var& sum_of_losses, int64_t total);

// For reports: adds up what the ranks' losses returned, on no tape, and the same bits on every rank.
double sum_over_ranks(double share, Communicator& comm, Site site = Site::here());

}  // namespace weft
