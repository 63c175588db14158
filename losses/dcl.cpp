#include "losses/dcl.h"

#include "collectives/ops.h"
#include "collectives/share.h"
#include "collectives/spreads.h"
#include "engine/ops/elementwise.h"
#include "engine/ops/reduce.h"
#include "losses/loss_call.h"
#include "losses/two_views.h"

namespace weft {

// Of constants on no tape, so nothing of this is met again in backward.
static Var weights(const Var& similarities, const Division& division, const DclOptions& options, Communicator& comm,
                   Site site) {
  const bool of_batch = options.weights == DclWeights::of_batch;
  const Var logits = Var(detach(similarities).value()) / options.sigma;
  const Var own = log_sum_exp(logits, 0), all = of_batch ? all_reduce_log_sum_exp(own, comm, site) : own;
  const auto count = static_cast<double>(of_batch ? division.total : division.mine());
  return derived((2 - count * exp(logits - repeat(all, 0, logits.size()))).value(), similarities);
}

Var dcl(const Var& first, const Var& second, const DclOptions& options, Communicator& comm, Site caller) try {
  const Site site = LossCall("dcl", caller)
                        .positive("temperature", options.temperature)
                        .count("weights", static_cast<int64_t>(options.weights))
                        .positive("sigma", options.sigma)
                        .exchange(options.exchange);
  const TwoViews views(first, second, options.exchange, comm, site);
  if (views.division.total < 2) return share(sum(views.all) * 0.0, 1, comm);
  const Var scale = constant_scale(1 / options.temperature, views.all);
  const Var similarities = sum(views.first * views.second, 1);
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
