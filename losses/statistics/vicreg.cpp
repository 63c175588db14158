// SPDX-License-Identifier: Apache-2.0
#include "weft/losses/statistics/vicreg.h"

#include "weft/collectives/placement_conversions.h"
#include "weft/collectives/share.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/matmul.h"
#include "weft/engine/ops/reduce.h"
#include "weft/engine/ops/shape_ops.h"
#include "weft/losses/common/loss_call.h"
#include "weft/losses/common/moments.h"
#include "weft/losses/common/precision.h"

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
  const Var penalty =
      (too_little_variance(0) + too_little_variance(1)) * (options.mu / 2) + (common(0) + common(1)) * options.nu;
  const Var apart = share(sum(square(a - b)), a.shape()[1] * views.count, comm) * options.lambda;
  return apart + counted_once(penalty, comm, site);
} catch (Error& error) {
  fail_in("vicreg", caller, error);
}

}  // namespace weft
