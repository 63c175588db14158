// SPDX-License-Identifier: Apache-2.0
#include "weft/collectives/share.h"

#include <algorithm>

#include "weft/collectives/placement_conversions.h"
#include "weft/engine/ops/elementwise.h"

namespace weft {
namespace {

Var part_of_sum(const Var& sum_of_losses, Communicator& comm) {
  require(sum_of_losses.size() == 1, "share: a sum of losses is a scalar, not ", sum_of_losses.shape());
  const bool whole = has_placements(sum_of_losses) && placement_of(sum_of_losses, comm) != Placement::partial;
  expect_placement("share", sum_of_losses, comm, {Placement::varying},
                   whole ? "what all ranks hold is no rank's own; keep_on(x, {0}, comm) counts it once"
                         : "it is a part of a sum already, as what share returns, which must not be divided again");
  return as_partial(sum_of_losses, comm);
}

}  // namespace

Var share(const Var& sum_of_losses, int64_t total, Communicator& comm) {
  require(total >= 0, "share: of ", total, " samples");
  return part_of_sum(sum_of_losses, comm) / static_cast<double>(std::max<int64_t>(total, 1));
}

Var share(const Var& sum_of_losses, const Var& total, Communicator& comm) {
  require(total.shape() == sum_of_losses.shape() && total.dtype() == sum_of_losses.dtype(), "share: the sum is ",
          sum_of_losses.dtype(), " ", sum_of_losses.shape(), ", the total ", total.dtype(), " ", total.shape());
  expect_placement("share", total, comm, {Placement::replicated},
                   "a total is of all ranks' samples or weights; all_reduce this rank's own");
  const auto constant = [&](double value) { return Tensor::full(total.shape(), value, total.dtype(), total.device()); };
  const Var nothing = constant_like(equal(total.value(), constant(0)), total);
  return part_of_sum(sum_of_losses, comm) / where(nothing, constant_like(constant(1), total), total);
}

double sum_over_ranks(double share, Communicator& comm, Site site) {
  return comm.all_reduce(Tensor::full({}, share, DType::f64), ReduceOp::sum, site).item();
}

}  // namespace weft
