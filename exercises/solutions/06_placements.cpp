// SPDX-License-Identifier: Apache-2.0
// Exercise 6. a_r says what rank r's units make of x, one term of its cotangent. All terms are summed by an all_reduce
// in backward, which is the adjoint of vary. Forward there is another one, whose adjoint hands on equal cotangents.
#include "exercises/functions.h"
#include "weft/collectives/placement_conversions.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/matmul.h"

namespace weft::exercises {

Var two_layers(const Var& x, const Var& a, const Var& b, Communicator& comm) {
  const Var hidden = tanh(matmul(vary(x, comm), a));
  return all_reduce_equal(matmul(hidden, b), comm);
}

}  // namespace weft::exercises
