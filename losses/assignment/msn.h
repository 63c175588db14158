// SPDX-License-Identifier: Apache-2.0
#pragma once
// MSN and PMSN: views of a sample learn to be assigned to the same prototypes as a target view of it. A regularizer
// makes all samples together use the prototypes equally often (MSN), or according to a power law (PMSN).
#include <optional>

#include "weft/collectives/communicator.h"
#include "weft/engine/tape/tape.h"

namespace weft {

struct MsnOptions {
  double temperature = 0.1;
  double target_temperature = 0.25;  // sharpens targets: raises their probabilities to the power 1 / target_temperature
  int iterations = 3;                // of Sinkhorn on the targets; 0 leaves them unchanged
  double regularization_weight = 1;
  std::optional<double> power_law = std::nullopt;  // the exponent of PMSN; without one the loss is MSN
};

// Returns this rank's share. `anchors` holds the features (b, d) of each view, `targets` is (b, d), and `prototypes`
// (K, d) is the same on every rank; none need be normalized. With p = softmax(cosines with prototypes / temperature)
// and q the sharpened targets, over the samples of all ranks and the views of anchors, the whole loss is
//
//   mean over samples and views of - q . log p, plus regularization_weight times
//     MSN:   log K - entropy(p'), where p' is the mean of all p
//     PMSN:  sum_k r_k log(r_k / p'_k), where r_k is proportional to 1 / k^power_law
//
// Targets have no gradient, not even to the prototypes. The regularizer is not linear in p', so p' is summed over ranks
// by an all_reduce of K values, and its gradient by another one in backward. Sinkhorn's sums and the counts cross, too.
Var msn(const Vars& anchors, const Var& targets, const Var& prototypes, const MsnOptions& options, Communicator& comm,
        Site caller = Site::here());

}  // namespace weft
