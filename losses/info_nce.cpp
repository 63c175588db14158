#include "losses/info_nce.h"

#include "collectives/share.h"
#include "collectives/spreads.h"
#include "engine/ops/elementwise.h"
#include "engine/ops/normalize.h"
#include "engine/ops/reduce.h"
#include "engine/ops/scores.h"
#include "losses/pairs.h"

namespace weft {

// The sum over this rank's samples of the log-sum-exps, of which the symmetric form has one more per sample.
static Var log_sum_exps(const Var& queries, const Var& keys, const Var& scale, const Rows& rows,
                        const InfoNceOptions& options, Communicator& comm) {
  const AllKeys all(keys, rows, options.exchange, comm);
  if (options.symmetric) {
    const AllKeys::Both both = all.log_sum_exp_both(queries, scale);
    return sum(both.of_queries + both.of_keys) / 2;
  }
  const Var wide = repeat(scale, 0, queries.shape()[0]);
  const Var among = options.in_batch ? all.log_sum_exp(queries, scale) : sum(queries * keys, 1) * wide;
  if (!options.negatives.defined()) return sum(among);
  return sum(log_add_exp({among, score_log_sum_exp(queries, options.negatives, scale)}));
}

Var info_nce(const Var& queries, const Var& keys, const InfoNceOptions& options, Communicator& comm) {
  require(options.in_batch || options.negatives.defined(), "info_nce: there is nothing to pick from; give negatives");
  require(!options.symmetric || (options.in_batch && !options.negatives.defined()),
          "info_nce: the symmetric form is of a batch alone, since negatives are keys and no queries");
  const Pairs pairs("info_nce", queries, keys, comm);
  const Var q = l2_normalize(pairs.first), k = l2_normalize(pairs.second);
  const Var scale = constant_scale(1 / options.temperature, q);
  const Var sum_of_losses =
      log_sum_exps(q, k, scale, pairs.division.rows, options, comm) - sum(q * k) / options.temperature;
  return share(sum_of_losses, pairs.division.total, comm);
}

}  // namespace weft
