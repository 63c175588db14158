// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "tests/cases/losses/loss_case.h"
#include "weft/engine/maths/maths.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/matmul.h"
#include "weft/engine/ops/reduce.h"
#include "weft/engine/ops/shape_ops.h"
#include "weft/losses/statistics/sigreg.h"

namespace weft {
namespace {

constexpr SigregOptions few = {.directions = 4, .knots = 5, .t_max = 2};
constexpr Random key = {21, 3};

// Sums over the samples for every direction and every knot from -t_max to t_max.
Var statistic(const Var& x) {
  const double n = static_cast<double>(x.shape()[0]);
  Var total = Tensor::zeros({}, DType::f64);
  for (int64_t i = 0; i < few.directions; ++i) {
    const Var drawn = Tensor::normal({few.directions, 3}, key, 0, 1, DType::f64).slice(i, i + 1);
    const Var projected = matmul(x, transpose(drawn)) / std::sqrt(sum(square(drawn)).value().item());
    for (const double t : {-2.0, -1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0}) {
      const double normal = maths::exp(-t * t / 2), width = std::abs(t) == 2 ? 0.25 : 0.5;
      const Var real = sum(cos(projected * t)) / n - normal, imaginary = sum(sin(projected * t)) / n;
      total = total + (square(real) + square(imaginary)) * (normal * width * n / few.directions);
    }
  }
  return total;
}

Var whole_lejepa(const LossCase::Inputs& x) {
  Var total = Tensor::zeros({}, DType::f64);
  for (const Var& views : x.rows)
    for (int64_t i = 0; i < views.shape()[1]; ++i) {
      const Var view = reshape(slice(views, 1, i, i + 1), {x.total, 3});
      total = total + statistic(view) * (0.3 / 5) + mean(square(view - mean(x.rows[0], 1))) * (0.7 / 5);
    }
  return total;
}

const LossCase sigreg_cases[] = {
    {"SIGReg",
     "",
     {{{3}}},
     [](const LossCase::Inputs& x, Communicator& comm) { return sigreg(x.rows[0], key, few, comm); },
     [](const LossCase::Inputs& x) { return statistic(x.rows[0]); }},
    {"LeJEPA",
     "",
     {{{2, 3}, {3, 3}}},
     [](const LossCase::Inputs& x, Communicator& comm) {
       return lejepa(x.rows[0], x.rows[1], key, {.lambda = 0.3, .sigreg = few}, comm);
     },
     whole_lejepa}};

}  // namespace
}  // namespace weft
