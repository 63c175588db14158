// SPDX-License-Identifier: Apache-2.0
#include "weft/collectives/nn/distributed_batch_norm.h"

#include <cmath>

#include "weft/collectives/collectives.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/reduce.h"
#include "weft/engine/ops/shape_ops.h"

namespace weft {

// One all_gather moves the statistics of each rank's rows. The mean of the batch is the mean of the ranks' means,
// weighted by their counts; its variance is the mean of their variances plus the variance of their means. All terms are
// squares of differences, so nothing large cancels. A rank without rows has weight zero.
BatchNorm::Statistics DistributedBatchNorm::statistics(const Var& x) const {
  const Statistics own = BatchNorm::statistics(x);
  const int64_t ranks = group_.size(), width = own.mean.size();
  const Tensor count = Tensor::full({1}, static_cast<double>(own.count), x.dtype(), x.device());
  const Var mine = concat({with_placements(count, x.placements()), own.origin, own.mean, own.variance}, 0);
  const Var all = all_gather(reshape(mine, {1, mine.size()}), group_, Site::here("batch statistics"));
  const auto columns = [&](int64_t begin) { return slice(all, 1, begin, begin + width); };
  const Var counts = detach(reshape(slice(all, 1, 0, 1), {ranks})), total = sum(counts);
  const Var origins = detach(columns(1)), means = columns(1 + width), variances = columns(1 + 2 * width);

  const Var weights = counts / repeat(total, 0, ranks);
  const auto average = [&](const Var& rows) { return sum(mul_along(rows, weights, 0), 0); };
  const Var origin = average(origins), offsets = sub_along(origins, origin, -1) + means, mean = average(offsets);
  const Var variance = average(variances + square(sub_along(offsets, mean, -1)));
  return {std::llround(total.value().item()), origin, mean, variance, sub_along(sub_along(x, origin, -1), mean, -1)};
}

}  // namespace weft
