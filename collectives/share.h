// SPDX-License-Identifier: Apache-2.0
#pragma once
// A rank returns its share of the loss of the whole batch, and the sum of the shares is reported.
//
//   const Var loss = share(sum(cross_entropy(outputs, labels)), samples, comm);  // samples: of all ranks
//   const Var penalised = loss + keep_on(0.1 * sum(square(w)), {0}, comm);       // a term of all ranks counts once
#include "weft/collectives/communicator.h"
#include "weft/engine/tape/tape.h"

namespace weft {

// This rank's part of a mean over `total` samples, or tokens, of all ranks and micro-batches. It is Partial, so that no
// value can be added to it once per rank by mistake. If `total` is zero, so are the share and its gradients. A computed
// total, such as a sum of weights over all ranks, must be equal on all ranks; gradients flow to it, too.
Var share(const Var& sum_of_losses, int64_t total, Communicator& comm);
Var share(const Var& sum_of_losses, const Var& total, Communicator& comm);

// For reports: the sum of the ranks' shares, on no tape, with the same bits on every rank.
double sum_over_ranks(double share, Communicator& comm, Site site = Site::here());

}  // namespace weft
