// SPDX-License-Identifier: Apache-2.0
#pragma once
// SwaV: assigns each crop of an image to prototypes, such that the batch uses all prototypes equally often, and makes
// the network predict this assignment, the crop's code, from the other crops of the image.
#include "weft/collectives/communicator.h"
#include "weft/engine/tape/tape.h"

namespace weft {

struct SwavOptions {
  double temperature = 0.1;  // of predictions
  double epsilon = 0.05;     // of codes
  int iterations = 3;        // of Sinkhorn
};

// Returns this rank's share. Crops are given as scores (b, prototypes), the products of normalized features and
// prototypes. Only crops of `high` resolution have codes q_i; every crop has predictions. With B samples on all ranks,
// H high crops and V crops in all, the whole loss is
//
//   1 / (B H (V - 1)) sum over samples, i and v != i of - q_i . log softmax(scores_v / temperature)
//
// Codes have no gradient. `queued` may hold this rank's scores (m, prototypes) of earlier features for each high crop;
// they take part in computing the codes. Sinkhorn's sums and the counts of samples cross ranks.
Var swav(const Vars& high, const Vars& low, const SwavOptions& options, Communicator& comm, const Vars& queued = {},
         Site caller = Site::here());

}  // namespace weft
