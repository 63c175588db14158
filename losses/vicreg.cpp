#include "losses/vicreg.h"

#include "collectives/share.h"
#include "collectives/spreads.h"
#include "engine/ops/elementwise.h"
#include "engine/ops/matmul.h"
#include "engine/ops/reduce.h"
#include "engine/ops/shape_ops.h"
#include "losses/case.h"
#include "losses/loss_call.h"
#include "losses/moments.h"
#include "losses/precision.h"

namespace weft {

Var vicreg(const Var& first, const Var& second, const VicregOptions& options, Communicator& comm, Site caller) try {
  const Site site = LossCall("vicreg", caller)
                        .number("lambda", options.lambda)
                        .number("mu", options.mu)
                        .number("nu", options.nu)
                        .number("gamma", options.gamma)
                        .not_negative("epsilon", options.epsilon);
  expect_views(first, second);
  const Var a = precise(first), b = precise(second);
  const Moments views = moments({a, b}, {{0, 0}, {1, 1}}, comm, Columns::all, site);
  require(views.count > 1, "the batch of all ranks has ", views.count, " samples; a variance needs at least two");
  const double unbiased = static_cast<double>(views.count) / static_cast<double>(views.count - 1);
  const double features = static_cast<double>(a.shape()[1]);
  const Var others = 1.0 - identity(views.covariances[0]);

  const auto too_little_variance = [&](size_t view) {
    const Var deviations = sqrt(affine(views.variances[view], unbiased, options.epsilon));
    return sum(relu(options.gamma - deviations)) / features;
  };
  const auto common = [&](size_t view) {
    return sum(square(views.covariances[view] * others)) * (unbiased * unbiased / features);
  };
  const Var spread =
      (too_little_variance(0) + too_little_variance(1)) * (options.mu / 2) + (common(0) + common(1)) * options.nu;
  const Var apart = share(sum(square(a - b)), a.shape()[1] * views.count, comm) * options.lambda;
  return apart + counted_once(spread, comm, site);
} catch (Error& error) {
  fail_in("vicreg", caller, error);
}

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
