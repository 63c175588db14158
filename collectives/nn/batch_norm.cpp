#include "collectives/nn/batch_norm.h"

#include <cmath>

#include "collectives/case.h"
#include "collectives/ops.h"
#include "engine/ops/elementwise.h"
#include "engine/ops/reduce.h"
#include "engine/ops/shape_ops.h"

namespace weft {
namespace {

// What the tests check: images of two pixels, of which the ranks have different numbers and some rank none.
std::vector<Shape> images(int rank, int) { return {{std::array{2, 0, 3, 1}[static_cast<size_t>(rank % 4)], 2, 3}}; }

Var normalized(std::span<const Var> x, Communicator& comm) {
  const Init init = {.key = {5}, .dtype = DType::f64};
  const auto batch = DistributedBatchNorm("n", 3, init, comm).statistics(x[0]);
  return mul_along(batch.centered, rsqrt(batch.variance + 0.1), -1);
}

DistributedCase::Values specification(const DistributedCase::Values& all) {
  DistributedCase::Values out = all;
  for (size_t channel = 0; channel < 3; ++channel) {
    const auto mean = [&](auto f) {
      double sum = 0, count = 0;
      for (const auto& x : all)
        for (size_t i = channel; i < x.size(); i += 3, ++count) sum += f(x[i]);
      return sum / count;
    };
    const double center = mean([](double v) { return v; });
    const double variance = mean([&](double v) { return (v - center) * (v - center); });
    for (auto& x : out)
      for (size_t i = channel; i < x.size(); i += 3) x[i] = (x[i] - center) / std::sqrt(variance + 0.1);
  }
  return out;
}

const DistributedCase batch_norm_case{"DistributedBatchNorm", images, normalized, specification};

}  // namespace

// What each rank has of its own rows travels together. The mean of the whole is the mean of the ranks' means, weighted
// by their counts; its variance is the mean of their variances plus the variance of their means. All terms are squares
// of differences, so nothing large cancels. An empty rank has weight zero.
BatchNorm::Statistics DistributedBatchNorm::statistics(const Var& x) const {
  const Statistics own = BatchNorm::statistics(x);
  const int64_t ranks = group_.size(), width = own.mean.size();
  const Tensor count = Tensor::full({1}, static_cast<double>(own.count), x.dtype(), x.device());
  const Var mine = concat({with_spreads(count, x.spreads()), own.origin, own.mean, own.variance}, 0);
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
