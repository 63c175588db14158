#include "losses/nt_xent.h"

#include "collectives/share.h"
#include "collectives/spreads.h"
#include "engine/ops/elementwise.h"
#include "engine/ops/reduce.h"
#include "losses/loss_call.h"
#include "losses/two_views.h"

namespace weft {

Var nt_xent(const Var& first, const Var& second, const NtXentOptions& options, Communicator& comm, Site caller) try {
  const Site site = LossCall("nt_xent", caller).positive("temperature", options.temperature).exchange(options.exchange);
  const TwoViews views(first, second, options.exchange, comm, site);
  const Var scale = constant_scale(1 / options.temperature, views.all);
  auto [others, positives, none] = views.log_sum_exp(scale, TwoViews::Counterpart::with);
  if (options.negatives.defined())
    others = log_add_exp({others, log_sum_exp_of_negatives(views.all, options.negatives, scale)});
  const Var sum_of_losses = cast(sum(others - positives), views.all.dtype());
  return share(sum_of_losses, 2 * views.division.total, comm);
} catch (Error& error) {
  fail_in("nt_xent", caller, error);
}

}  // namespace weft
