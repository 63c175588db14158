// SPDX-License-Identifier: Apache-2.0
#include "weft/losses/quantizers/codebook/rotation.h"

#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/normalize.h"
#include "weft/engine/ops/reduce.h"

namespace weft {

// R x = x - 2 r (r x) + 2 v (u x), where u and v are the directions of x and q, and r is that of u + v.
Var rotated_to(const Var& x, const Var& q) {
  constexpr double least = 1e-6;
  const Var from = detach(x), to = detach(q);
  const Var u = l2_normalize(from, least), v = l2_normalize(to, least), r = l2_normalize(u + v, least);
  const auto along = [&](const Var& direction, const Var& other) { return mul_along(direction, sum(other * x, 1), 0); };
  const Var lengths = norm(from, 1),
            floor = constant_like(Tensor::full(lengths.shape(), least, x.dtype(), x.device()), x);
  return mul_along(x - 2 * along(r, r) + 2 * along(v, u), norm(to, 1) / maximum(lengths, floor), 0);
}

Var passed_through(const Var& x, const Var& q, Through through) {
  return straight_through(q, through == Through::rotation ? rotated_to(x, q) : x);
}

}  // namespace weft
