// SPDX-License-Identifier: Apache-2.0
#pragma once
// The orthogonalization of Muon (rules.h): replaces an update by the nearest matrix with orthogonal rows or columns. A
// matrix that a group of ranks divides is gathered first.
#include "weft/engine/tape/tape.h"
#include "weft/optim/rules.h"

namespace weft {

// Approximately u v' for a matrix u s v': its singular values become about 1. Uses the iteration of Newton and Schulz,
// which consists of matrix products only (kellerjordan.github.io/posts/muon).
Tensor orthogonalized(const Tensor& matrix, const Muon& rule);

// The same for a parameter that a group may divide: orthogonalizes the whole matrix and returns this rank's slice. All
// ranks of the group must call it.
Tensor orthogonalized(const Tensor& mine, const Parameter& parameter, const Muon& rule);

}  // namespace weft
