// SPDX-License-Identifier: Apache-2.0
#include "weft/losses/contrastive/two_views.h"

#include "weft/engine/ops/normalize.h"
#include "weft/engine/ops/shape_ops.h"
#include "weft/losses/common/precision.h"

namespace weft {
namespace {

// Both in one pass.
Var normalized(const Var& first, const Var& second) {
  require(first.shape().rank() == 2 && first.shape() == second.shape() && first.dtype() == second.dtype(),
          "two views are (b, d) each, not ", first.dtype(), " ", first.shape(), " and ", second.dtype(), " ",
          second.shape());
  return l2_normalize(precise(concat({first, second}, 0)));
}

Rows twice(Rows rows) {
  for (int64_t& count : rows) count *= 2;
  return rows;
}

}  // namespace

TwoViews::TwoViews(const Var& first_view, const Var& second_view, const KeySchedule& schedule, Communicator& comm,
                   Site site)
    : all(normalized(first_view, second_view)),
      division(all.shape()[0] / 2, comm, site),
      keys_(all, twice(division.rows), schedule, comm, site) {}

Var TwoViews::first() const { return slice(all, 0, 0, division.mine()); }
Var TwoViews::second() const { return slice(all, 0, division.mine(), 2 * division.mine()); }

AllKeys::LogSumExps TwoViews::log_sum_exp(const Var& scale, Counterpart counterpart) const {
  const int64_t b = division.mine();
  Tensor itself({2 * b, 1}, DType::i64), counterparts({2 * b}, DType::i64);
  for (int64_t i = 0; i < 2 * b; ++i) {
    itself.mutate<int64_t>()[i] = 2 * division.first + i;
    counterparts.mutate<int64_t>()[i] = 2 * division.first + (i + b) % (2 * b);
  }
  if (counterpart == Counterpart::with) return keys_.log_sum_exp(all, scale, counterparts, itself);
  return keys_.log_sum_exp(all, scale, {}, concat({itself, counterparts.reshape({2 * b, 1})}, 1).value());
}

}  // namespace weft
