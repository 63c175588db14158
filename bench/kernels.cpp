// SPDX-License-Identifier: Apache-2.0
// exp, tanh and softmax: elementary functions must be vectorized.
#include "bench/measuring/calibrate.h"
#include "bench/measuring/goal.h"
#include "bench/measuring/of_kind.h"
#include "weft/engine/kernels/backend.h"
#include "weft/engine/kernels/scalar_ops.h"

namespace weft::bench {
namespace {

// The time per vector in cycles, where a cycle is the time of two fused multiply-adds of such vectors. There is one
// bound for v3 and one for v4.
std::vector<Check> per_element(const Rounds& rounds, double max_of_v3, double max_of_v4) {
  enum { ours, rival, peak };
  const int lanes = of_chosen_kind().lanes;
  const std::vector<double> times = rounds.of(ours), flops = rounds.of(peak);
  std::vector<double> cycles;
  for (size_t round = 0; round < times.size(); ++round) cycles.push_back(times[round] / (4 * flops[round]));
  return {{"ns per element", duration(rounds.median(ours)), duration(rounds.median(rival)), middle(scaled(times, 1e9))},
          {"cycles per " + std::to_string(lanes) + " floats", "", "", middle(cycles),
           lanes < 8 ? Sense::shown : Sense::at_most, lanes == 8 ? max_of_v3 : max_of_v4}};
}

std::vector<Check> elementwise(Unary op, Elementwise rival, double max_of_v3) {
  constexpr int64_t n = 1 << 14;
  const Tensor x = Tensor::uniform({n}, {1}, -4, 4);
  Tensor y({n});
  float* to = y.mutate<float>();
  Backend& cpu = backend(Device::cpu);
  return per_element(Rounds({per(n, timed([&] { cpu.unary(op, {}, x, y); })),
                             per(n, timed([&] { rival(n, x.data<float>(), to); })), fma_peak()}),
                     max_of_v3, 10);
}

std::vector<Check> softmax() {
  const Tensor x = Tensor::uniform({1024, 1024}, {1}, -4, 4);
  Tensor y = Tensor::like(x);
  Backend& cpu = backend(Device::cpu);
  const double n = static_cast<double>(x.size());
  return per_element(Rounds({per(n, timed([&] { cpu.normalize_rows(Normalizer::softmax, x, y); })),
                             per(1 / 4.0, plain_copy(4 * n)), fma_peak()}),
                     1.2 * 0.45 * 3.24 * 8, 16);
}

const Goal exp_goal{"exp", "exp of 16 K floats (theirs: Eigen)",
                    [] { return elementwise(Unary::Exp, of_chosen_kind().eigen_exp, 10.5); }};
const Goal tanh_goal{"tanh", "tanh of 16 K floats (theirs: Eigen)",
                     [] { return elementwise(Unary::Tanh, of_chosen_kind().eigen_tanh, 13); }};
const Goal softmax_goal{"softmax", "softmax of 1024 rows of 1024 floats (theirs: copying them)", softmax};

}  // namespace
}  // namespace weft::bench
