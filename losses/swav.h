#pragma once
// SwaV: the code of a sample, found by Sinkhorn over the batch of all ranks, is predicted from its other crops.
#include "collectives/communicator.h"
#include "engine/tape.h"

namespace weft {

struct SwavOptions {
  double temperature = 0.1;  // of predictions
  double epsilon = 0.05;     // of codes
  int iterations = 3;        // of Sinkhorn
};

// What is given are scores (b, prototypes): products of normalized features and prototypes. Only crops of `high`
// resolution have codes q_i; every crop has predictions. With B samples, H high crops and V in all, the whole loss is
//
//   1 / (B H (V - 1)) sum over samples, i and v != i of - q_i . log softmax(scores_v / temperature)
//
// Codes have no gradient. `queued`, if there are any, are scores of earlier features for each high crop, this rank's
// (m, prototypes), which take part in finding the codes. What crosses ranks: Sinkhorn's sums, and the counts.
Var swav(const Vars& high, const Vars& low, const SwavOptions& options, Communicator& comm, const Vars& queued = {},
         Site caller = Site::here());

}  // namespace weft
