#pragma once
// The two ends of every loss: a rank returns its share of the whole, and the whole is reported.
//
//   const Var loss = share(sum(cross_entropy(outputs, labels)), samples, comm);  // of all ranks' samples
//   const Var penalised = loss + keep_on(0.1 * sum(square(w)), {0}, comm);       // what all ranks hold counts once
#include "collectives/communicator.h"
#include "engine/tape.h"

namespace weft {

// This rank's part of a mean over `total` samples, or tokens, of all ranks and micro-batches: Partial, so that nothing
// can be added to it once per rank. Of nothing at all it is zero, with zero gradients. A total that is computed, such
// as a sum of weights over all ranks, must be the same on all of them; gradients flow to it, too.
Var share(const Var& sum_of_losses, int64_t total, Communicator& comm);
Var share(const Var& sum_of_losses, const Var& total, Communicator& comm);

// For reports: adds up what the ranks' losses returned, on no tape, and the same bits on every rank.
double sum_over_ranks(double share, Communicator& comm, Site site = Site::here());

}  // namespace weft
