// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "tests/cases/collectives/collective_case.h"
#include "weft/collectives/collectives.h"
#include "weft/collectives/nn/distributed_batch_norm.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/reduce.h"
#include "weft/engine/ops/shape_ops.h"

namespace weft {
namespace {

// Images of two pixels. The ranks have different numbers of them, and one rank has none.
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

}  // namespace weft
