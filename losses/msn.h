#pragma once
// MSN, and PMSN: views of a sample are assigned to prototypes as a target view is, and all samples together use the
// prototypes equally, or by a power law.
#include <optional>

#include "collectives/communicator.h"
#include "engine/tape.h"

namespace weft {

struct MsnOptions {
  double temperature = 0.1;
  double target_temperature = 0.25;  // sharpens targets: their probabilities to the power of 1 / this
  int iterations = 3;                // of Sinkhorn on the targets; 0 leaves them as they are
  double regularization_weight = 1;
  std::optional<double> power_law = std::nullopt;  // PMSN's exponent; none: MSN
};

// `anchors` are the features (b, d) of each view, `targets` (b, d), `prototypes` (K, d) the same on every rank; they
// need not be normalized. p = softmax(cosines with prototypes / temperature). Over the B samples of all ranks and V
// views of anchors, with q the sharpened targets, the whole loss is
//
//   mean over samples and views of - q . log p, plus regularization_weight times
//     MSN:   log K - entropy of p', where p' is the mean of all p
//     PMSN:  sum_k r_k log(r_k / p'_k), where r_k is proportional to 1 / k^power_law
//
// Targets, and the prototypes in them, have no gradient. p' is not linear in the loss: it is completed over ranks by an
// all_reduce of K values, and again in backward. Besides, Sinkhorn's sums and the counts cross ranks.
Var msn(const Vars& anchors, const Var& targets, const Var& prototypes, const MsnOptions& options, Communicator& comm,
        Site caller = Site::here());

}  // namespace weft
