// SPDX-License-Identifier: Apache-2.0
#include "weft/losses/contrastive/info_nce.h"

#include "weft/collectives/placement_conversions.h"
#include "weft/collectives/share.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/normalize.h"
#include "weft/engine/ops/reduce.h"
#include "weft/losses/common/loss_call.h"
#include "weft/losses/contrastive/pairs.h"

namespace weft {

// One loss per sample of this rank, in f64.
static Var info_nce_losses(const Var& queries, const Var& keys, const Var& scale, const Pairs& pairs,
                           const InfoNceOptions& options, Communicator& comm, Site site) {
  const AllKeys all(keys, pairs.division.rows, options.schedule, comm, site);
  if (options.symmetric) {
    const auto [of_queries, of_pairs, of_keys] = all.log_sum_exp_both(queries, scale, pairs.numbers());
    return (of_queries + of_keys) / 2 - of_pairs;
  }
  AllKeys::LogSumExps found;
  if (options.in_batch) {
    found = all.log_sum_exp(queries, scale, pairs.numbers());
  } else {
    const Var positives = sum(queries * keys, 1) * repeat(scale, 0, queries.shape()[0]);
    found.of_queries = found.of_targets = cast(positives, DType::f64);
  }
  if (options.negatives.defined())
    found.of_queries = log_add_exp({found.of_queries, log_sum_exp_of_negatives(queries, options.negatives, scale)});
  return found.of_queries - found.of_targets;
}

Var info_nce(const Var& queries, const Var& keys, const InfoNceOptions& options, Communicator& comm, Site caller) try {
  LossCall call("info_nce", caller);
  call.positive("temperature", options.temperature).schedule(options.schedule);
  if (options.symmetric || !options.in_batch) call.choice(options.symmetric ? "symmetric" : "negatives alone");
  const Site site = call;
  require(options.in_batch || options.negatives.defined(), "there is nothing to pick from; give negatives");
  require(!options.symmetric || (options.in_batch && !options.negatives.defined()),
          "the symmetric form is of a batch alone, since negatives are keys and no queries");
  const Pairs pairs(queries, keys, comm, site);
  const Var q = l2_normalize(pairs.first), k = l2_normalize(pairs.second);
  const Var scale = constant_scale(1 / options.temperature, q);
  const Var sum_of_losses = cast(sum(info_nce_losses(q, k, scale, pairs, options, comm, site)), q.dtype());
  return share(sum_of_losses, pairs.division.total, comm);
} catch (Error& error) {
  fail_in("info_nce", caller, error);
}

}  // namespace weft
