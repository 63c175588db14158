// SPDX-License-Identifier: Apache-2.0
#include "weft/engine/ops/dropout.h"

#include "weft/engine/kernels/backend.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/tape/checks.h"

namespace weft {
namespace {

// One sample a line.
// clang-format off
const Op dropout_op{"dropout", {
    {"some", {{4, 5}}, [](auto x) { return dropout(x[0], 0.4, {7, 1}); }},
    {"none", {{2, 3}}, [](auto x) { return dropout(x[0], 0, {7, 1}); }},
    {"all", {{2, 3}}, [](auto x) { return dropout(x[0], 1, {7, 1}); }},
}, Algebra::linear};
// clang-format on

}  // namespace

Var dropout(const Var& x, double p, Random key) {
  check_floating(dropout_op, x);
  require(p >= 0 && p <= 1, "dropout: a probability is needed, not ", p);
  if (p == 0) return x;
  const Tensor draws = Tensor::uniform(x.shape(), key, 0, 1, DType::f32, x.device());
  const Tensor threshold = Tensor::full(x.shape(), p, DType::f32, x.device());
  const Var kept = replicated_constant(less_equal(threshold, draws).to(x.dtype()));  // the key is equal on all ranks
  return x * affine(kept, p < 1 ? 1 / (1 - p) : 0, 0);
}

}  // namespace weft
