// SPDX-License-Identifier: Apache-2.0
// P13: after warm-up, a training step allocates no memory from the system.
#include <fmt/format.h>

#include "bench/measuring/allocations.h"
#include "bench/measuring/goal.h"
#include "bench/networks.h"
#include "weft/engine/tensor/pool.h"

namespace weft::bench {
namespace {

Check calls_per_step(const char* what, Network& net) {
  constexpr int steps = 10;
  for (int i = 0; i < 3; ++i) net.step();
  const int64_t pool_before = pool::statistics().system_calls;
  CountAllocations calls;
  for (int i = 0; i < steps; ++i) net.step();
  const double per_step = static_cast<double>(calls.stop()) / steps;
  const auto by_pool = pool::statistics().system_calls - pool_before;
  if (per_step > 0) fmt::print(stderr, "{}: the first allocation of a step is by{}\n", what, CountAllocations::first());
  return {what,
          fmt::format("{} calls", per_step),
          fmt::format("{} by the pool", by_pool),
          {per_step, per_step, per_step},
          Sense::at_most,
          0};
}

std::vector<Check> allocations() {
  Mlp mlp(64, 784, 128, 10);
  ConvEncoder encoder(16);
  return {calls_per_step("MLP", mlp), calls_per_step("conv encoder", encoder)};
}

const Goal p13{"P13", "system allocations (malloc and its kin) per training step after warm-up", allocations};

}  // namespace
}  // namespace weft::bench
