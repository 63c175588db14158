// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "tests/cases/losses/loss_case.h"
#include "weft/collectives/placement_conversions.h"
#include "weft/collectives/share.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/matmul.h"
#include "weft/engine/ops/normalize.h"
#include "weft/engine/ops/reduce.h"
#include "weft/engine/ops/shape_ops.h"
#include "weft/losses/common/loss_call.h"
#include "weft/losses/common/moments.h"
#include "weft/losses/common/precision.h"
#include "weft/losses/statistics/tico.h"

namespace weft {
namespace {

Var whole_tico(const LossCase::Inputs& x, const Tensor& before) {
  const Var a = l2_normalize(x.rows[0]), b = l2_normalize(x.rows[1]);
  const double n = static_cast<double>(x.total);
  const Var now = Var(before) * 0.7 + detach(matmul(transpose(a), a)) * (0.3 / n);
  return 1.0 - sum(a * b) / n + sum(matmul(a, now) * a) * (5 / n);
}

// No finite differences, since they would include the change of M, which has no gradient.
LossCase tico_case(std::string variant, Tensor (*before)()) {
  return {"TiCo",
          std::move(variant),
          {{{3}, {3}}},
          [=](const LossCase::Inputs& x, Communicator& comm) {
            const Device device = x.rows[0].device();
            Tico tico("tico", 3, {.key = {}, .dtype = DType::f64, .device = device}, {.beta = 0.7, .rho = 5});
            tico.covariance.value = before().to(device);
            return tico(x.rows[0], x.rows[1], {.training = true}, comm);
          },
          [=](const LossCase::Inputs& x) { return whole_tico(x, before()); },
          0};
}
Tensor at_first() { return Tensor::zeros({3, 3}, DType::f64); }
Tensor later() { return Tensor::uniform({3, 3}, {4}, -1, 1, DType::f64); }
const LossCase tico_cases[] = {tico_case("first step", at_first), tico_case("later step", later)};

}  // namespace

}  // namespace weft
