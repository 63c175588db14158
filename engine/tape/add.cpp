// SPDX-License-Identifier: Apache-2.0
#include "weft/engine/tape/add.h"

#include "weft/engine/kernels/backend.h"
#include "weft/engine/kernels/scalar_ops.h"
#include "weft/engine/tape/checks.h"
#include "weft/engine/tape/record.h"

namespace weft {

static const Op add_op{"add", {{"", {{2, 3}, {2, 3}}, [](auto x) { return x[0] + x[1]; }}}, Algebra::linear};

Var operator+(const Var& a, const Var& b) {
  check_floating(add_op, a);
  check_same(add_op, a, b);
  Tensor y = Tensor::like(a.value());
  backend(a.device()).binary(Binary::Add, a.value(), b.value(), y);
  const auto unchanged = [](const Var& g) { return g; };
  return record(add_op, y, from(a, unchanged), from(b, unchanged));
}

}  // namespace weft
