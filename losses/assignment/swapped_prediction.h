// SPDX-License-Identifier: Apache-2.0
#pragma once
// The part that SwaV and DINO share: the class distribution of a sample in one view is predicted from each of its other
// views. Nothing here crosses ranks.
#include "weft/engine/tape/tape.h"

namespace weft {

// Returns the cross entropy of this rank's samples, a scalar:
//
//   - sum over samples, and over i and v != i, of targets[i] . log softmax(views[v])
//
// targets[i] are the probabilities (samples, classes) in view i, and views[v] the logits predicted from view v. There
// may be more views than targets. Targets have no gradient.
Var swapped_cross_entropy(std::span<const Tensor> targets, std::span<const Var> views);
// The number of pairs of different views per sample, by which the mean divides.
int64_t swapped_pairs(size_t targets, size_t views);

}  // namespace weft
