#pragma once
#include "engine/tape.h"
#include "optim/rules.h"

namespace weft {

// u v' of a matrix u s v', nearly: its singular values become about 1. By the iteration of Newton and Schulz, which is
// made of products alone (kellerjordan.github.io/posts/muon).
Tensor orthogonalized(const Tensor& matrix, const Muon& rule);

// The same of what a parameter is a slice of, where a group divides it: this rank's slice of the result. All ranks of
// the group call it.
Tensor orthogonalized(const Tensor& mine, const Parameter& parameter, const Muon& rule);

}  // namespace weft
