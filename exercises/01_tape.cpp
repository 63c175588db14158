// SPDX-License-Identifier: Apache-2.0
// Exercise 1: the cotangents of a tape, by hand.
//
//   product = w * x,  square = w * w,  y = sum(product * square + product)
//
// Return the cotangents of product, square and w, elementwise, without a tape: what backward would hand to these nodes.
// Vars can be added and multiplied with each other and with numbers, as in 2 * w.
//
// Predict: which of the three cotangents would change if the last term, + product, were left out?
#include "exercises/functions.h"
#include "weft/engine/ops/elementwise.h"

namespace weft::exercises {

Cotangents cotangents(const Var& w, const Var& x) { throw NotWritten(); }

}  // namespace weft::exercises
