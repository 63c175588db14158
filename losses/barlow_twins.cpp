#include "losses/barlow_twins.h"

#include "engine/ops/elementwise.h"
#include "engine/ops/matmul.h"
#include "engine/ops/reduce.h"
#include "engine/ops/shape_ops.h"
#include "losses/case.h"
#include "losses/loss_call.h"
#include "losses/moments.h"
#include "losses/precision.h"

namespace weft {

Var barlow_twins(const Var& first, const Var& second, const BarlowTwinsOptions& options, Communicator& comm,
                 Site caller) try {
  const Site site =
      LossCall("barlow_twins", caller).number("lambda", options.lambda).not_negative("epsilon", options.epsilon);
  expect_views(first, second);
  const Moments views = moments({precise(first), precise(second)}, {{0, 1}}, comm, Columns::all, site);
  require(views.count > 1, "the batch of all ranks has ", views.count, " samples; a correlation needs at least two");
  const auto scale = [&](size_t i) { return rsqrt(views.variances[i] + options.epsilon); };
  const Var correlations = mul_along(mul_along(views.covariances[0], scale(0), 0), scale(1), 1);

  const Var one = identity(correlations), weights = affine(one, 1 - options.lambda, options.lambda);
  return counted_once(sum(square(correlations - one) * weights), comm, site);
} catch (Error& error) {
  fail_in("barlow_twins", caller, error);
}

namespace {

Var standardized(const Var& x) { return mul_along(sub_along(x, mean(x, 0), -1), rsqrt(variance(x, 0) + 0.1), -1); }

const LossCase barlow_twins_case{"Barlow Twins",
                                 "",
                                 {{{3}, {3}}},
                                 [](const LossCase::Inputs& x, Communicator& comm) {
                                   return barlow_twins(x.rows[0], x.rows[1], {.lambda = 0.3, .epsilon = 0.1}, comm);
                                 },
                                 [](const LossCase::Inputs& x) {
                                   const Var c = matmul(transpose(standardized(x.rows[0])), standardized(x.rows[1])) /
                                                 static_cast<double>(x.total);
                                   const Var one = Tensor::from({3, 3}, {1, 0, 0, 0, 1, 0, 0, 0, 1}, DType::f64);
                                   return sum(square((c - one) * one)) + 0.3 * sum(square(c * (1.0 - one)));
                                 }};

}  // namespace
}  // namespace weft
