// SPDX-License-Identifier: Apache-2.0
#include "weft/losses/contrastive/dcl.h"

#include "weft/collectives/collectives.h"
#include "weft/collectives/placement_conversions.h"
#include "weft/collectives/share.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/reduce.h"
#include "weft/losses/common/loss_call.h"
#include "weft/losses/contrastive/two_views.h"

namespace weft {

// Computed from constants that are on no tape, so that nothing is recorded for backward.
static Var weights(const Var& similarities, const Division& division, const DclOptions& options, Communicator& comm,
                   Site site) {
  const bool of_batch = options.weights == DclWeights::of_batch;
  const Var logits = Var(detach(similarities).value()) / options.sigma;
  const Var own = log_sum_exp(logits, 0), all = of_batch ? all_reduce_log_sum_exp(own, comm, site) : own;
  const auto count = static_cast<double>(of_batch ? division.total : division.mine());
  return constant_like((2 - count * exp(logits - repeat(all, 0, logits.size()))).value(), similarities);
}

Var dcl(const Var& first, const Var& second, const DclOptions& options, Communicator& comm, Site caller) try {
  const Site site = LossCall("dcl", caller)
                        .positive("temperature", options.temperature)
                        .count("weights", static_cast<int64_t>(options.weights))
                        .positive("sigma", options.sigma)
                        .schedule(options.schedule);
  const TwoViews views(first, second, options.schedule, comm, site);
  if (views.division.total < 2) return share(sum(views.all) * 0.0, 1, comm);
  const Var scale = constant_scale(1 / options.temperature, views.all);
  const Var similarities = sum(views.first() * views.second(), 1);
  const Var weighted = options.weights == DclWeights::none
                           ? similarities
                           : weights(similarities, views.division, options, comm, site) * similarities;
  const Var others = views.log_sum_exp(scale, TwoViews::Counterpart::without).of_queries;
  const Var sum_of_losses = sum(others) - cast(sum(weighted), DType::f64) * (2 / options.temperature);
  return share(cast(sum_of_losses, views.all.dtype()), 2 * views.division.total, comm);
} catch (Error& error) {
  fail_in("dcl", caller, error);
}

}  // namespace weft
