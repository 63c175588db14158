#pragma once
// What SwaV and DINO have in common: what a sample is in one view is to be predicted from each of its other views.
#include "engine/tape.h"

namespace weft {

// targets[i] are probabilities (samples, classes) found in view i, views[v] the logits of a prediction from view v;
// there may be more views than targets. The cross entropy
//
//   - sum over samples, and over i and v != i, of targets[i] . log softmax(views[v])
//
// is a scalar, this rank's. Targets have no gradient.
Var swapped_cross_entropy(std::span<const Tensor> targets, std::span<const Var> views);
// How many pairs of different views a sample has: what the mean divides by.
int64_t swapped_pairs(size_t targets, size_t views);

}  // namespace weft
