// SPDX-License-Identifier: Apache-2.0
#include "weft/losses/statistics/barlow_twins.h"

#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/matmul.h"
#include "weft/engine/ops/reduce.h"
#include "weft/engine/ops/shape_ops.h"
#include "weft/losses/common/loss_call.h"
#include "weft/losses/common/moments.h"
#include "weft/losses/common/precision.h"

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

}  // namespace weft
