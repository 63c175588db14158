// SPDX-License-Identifier: Apache-2.0
#include "weft/losses/contrastive/nt_xent.h"

#include "weft/collectives/placement_conversions.h"
#include "weft/collectives/share.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/reduce.h"
#include "weft/losses/common/loss_call.h"
#include "weft/losses/contrastive/two_views.h"

namespace weft {

Var nt_xent(const Var& first, const Var& second, const NtXentOptions& options, Communicator& comm, Site caller) try {
  const Site site = LossCall("nt_xent", caller).positive("temperature", options.temperature).schedule(options.schedule);
  const TwoViews views(first, second, options.schedule, comm, site);
  const Var scale = constant_scale(1 / options.temperature, views.all);
  const AllKeys::LogSumExps scores = views.log_sum_exp(scale, TwoViews::Counterpart::with);
  Var of_all = scores.of_queries;
  if (options.negatives.defined())
    of_all = log_add_exp({of_all, log_sum_exp_of_negatives(views.all, options.negatives, scale)});
  const Var sum_of_losses = cast(sum(of_all - scores.of_targets), views.all.dtype());
  return share(sum_of_losses, 2 * views.division.total, comm);
} catch (Error& error) {
  fail_in("nt_xent", caller, error);
}

}  // namespace weft
