// SPDX-License-Identifier: Apache-2.0
#include "tests/cases/losses/loss_case.h"
#include "weft/collectives/placement_conversions.h"
#include "weft/collectives/share.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/matmul.h"
#include "weft/engine/ops/reduce.h"
#include "weft/engine/ops/shape_ops.h"
#include "weft/losses/common/loss_call.h"
#include "weft/losses/common/moments.h"
#include "weft/losses/common/precision.h"
#include "weft/losses/statistics/vicreg.h"

namespace weft {
namespace {

Var whole_vicreg(const LossCase::Inputs& x, const VicregOptions& o) {
  Var loss = mean(square(x.rows[0] - x.rows[1])) * o.lambda;
  const double n = static_cast<double>(x.total);
  for (const Var& z : x.rows) {
    const Var centered = sub_along(z, mean(z, 0), -1);
    const Var squares = square(matmul(transpose(centered), centered) / (n - 1));
    const Var deviations = sqrt(variance(z, 0, 1) + o.epsilon);
    loss = loss + mean(maximum(o.gamma - deviations, Tensor::zeros({3}, DType::f64))) * (o.mu / 2) +
           (sum(squares) - sum(square(variance(z, 0, 1)))) * (o.nu / 3);
  }
  return loss;
}

LossCase vicreg_case(std::string variant, const VicregOptions& options) {
  return {"VICReg",
          std::move(variant),
          {{{3}, {3}}},
          [=](const LossCase::Inputs& x, Communicator& comm) { return vicreg(x.rows[0], x.rows[1], options, comm); },
          [=](const LossCase::Inputs& x) { return whole_vicreg(x, options); }};
}
const LossCase vicreg_cases[] = {vicreg_case("", {}), vicreg_case("some vary enough", {2, 3, 5, 0.6, 1e-3})};

}  // namespace

}  // namespace weft
