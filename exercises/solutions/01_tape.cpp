// SPDX-License-Identifier: Apache-2.0
// Exercise 1. Those of product and of w, which is used by product. That of square does not change. w is used three
// times, so its cotangent has three terms, of which two are equal.
#include "exercises/functions.h"
#include "weft/engine/ops/elementwise.h"

namespace weft::exercises {

Cotangents cotangents(const Var& w, const Var& x) {
  const Var product = w * x, square = w * w;
  const Var of_product = square + 1;
  return {of_product, product, of_product * x + 2 * product * w};
}

}  // namespace weft::exercises
