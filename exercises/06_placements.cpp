// SPDX-License-Identifier: Apache-2.0
// Exercise 6: conversions of placements.
//
// Two layers are divided among ranks by their hidden units: y = sum_r tanh(x a_r) b_r, where rank r has the columns a_r
// of the first matrix and the rows b_r of the second. x is equal on all ranks, and so shall y be: both Invariant,
// values and cotangents. a and b are Varying. Compute y; collectives/placement_conversions.h has the conversions in a
// table.
//
// Predict: what does a rank's own a_r say of x, and which collective is therefore needed in backward?
#include "exercises/functions.h"
#include "weft/collectives/placement_conversions.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/matmul.h"

namespace weft::exercises {

Var two_layers(const Var& x, const Var& a, const Var& b, Communicator& comm) { throw NotWritten(); }

}  // namespace weft::exercises
