// SPDX-License-Identifier: Apache-2.0
// Exercise 2: an operation and its pullbacks.
//
// Write c = sqrt(a b), elementwise for positive a and b, as an operation of its own: compute the value, and `record` it
// with a pullback for each input, from the cotangent g of c to that of the input, as examples/custom_op.cpp does. The
// second derivative is judged, too.
//
// Predict: what are the cotangents at a = 1, b = 4, g = 1, and which of them grows if a goes to zero?
#include "exercises/functions.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/tape/record.h"

namespace weft::exercises {
namespace {

const Op geometric_mean_op{"geometric_mean", {}};  // the operation's name on the tape

}  // namespace

Var geometric_mean(const Var& a, const Var& b) { throw NotWritten(); }

}  // namespace weft::exercises
