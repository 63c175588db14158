// SPDX-License-Identifier: Apache-2.0
#include "tools/weft/plan/measured_link.h"

#include <algorithm>
#include <chrono>

namespace weft::plan {
namespace {

// The median over three bursts of the seconds per call of the slowest rank.
double seconds_of_sum(Communicator& comm, int64_t count, int calls) {
  const Tensor x = Tensor::full({count}, 1);
  Tensor y = Tensor::like(x);
  std::array<double, 3> bursts;
  for (double& burst : bursts) {
    comm.barrier();
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i) comm.all_reduce(x, y);
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    burst = comm.all_reduce(Tensor::from({1}, {taken.count() / calls}, DType::f64), ReduceOp::maximum).item();
  }
  std::ranges::sort(bursts);
  return bursts[bursts.size() / 2];
}

}  // namespace

Link measured_link(Communicator& comm, int64_t bytes) {
  const int64_t ranks = comm.size(), count = bytes / 4;
  Link link;
  const MessageCost announced = comparison(Verb::all_reduce, ranks, link);
  link.latency = seconds_of_sum(comm, 2, 20) / announced.rounds;
  const double size = 4.0 * static_cast<double>(count);
  seconds_of_sum(comm, count, 1);  // TCP widens its window
  const double seconds = seconds_of_sum(comm, count, 1);
  link.bandwidth = 2 * size / seconds;  // which tells how many parts there were
  const MessageCost cost = cost_of_sum(link, size, ranks) += announced;
  link.bandwidth = cost.bytes / (seconds - std::min(cost.rounds * link.latency, seconds / 2));
  return link;
}

}  // namespace weft::plan
