// SPDX-License-Identifier: Apache-2.0
// P1: matrix products on one core.
#include <fmt/format.h>

#include "bench/measuring/calibrate.h"
#include "bench/measuring/goal.h"
#include "bench/measuring/of_kind.h"
#include "weft/engine/kernels/backend.h"

namespace weft::bench {
namespace {

struct Product {
  const char* name;
  int64_t m, n, k;
  bool ta = false, tb = false;
  double operations() const { return 2.0 * static_cast<double>(m * n * k); }
};

// Shapes of products from the training of small networks, contrastive losses and vector quantizers.
constexpr Product products[] = {
    {"64 cubed", 64, 64, 64},
    {"256 cubed", 256, 256, 256},
    {"512 cubed", 512, 512, 512},
    {"1024 cubed", 1024, 1024, 1024},
    {"2048 cubed", 2048, 2048, 2048},
    {"MLP forward 256x512x784", 256, 512, 784},
    {"MLP forward, w transposed", 256, 512, 784, false, true},
    {"MLP dw 784x512x256", 784, 512, 256, true, false},
    {"MLP forward 256x128x512", 256, 128, 512},
    {"im2col 50176x32x72", 50176, 32, 72},
    {"im2col dw 72x32x50176", 72, 32, 50176, true, false},
    {"similarity 1024x1024x128", 1024, 1024, 128, false, true},
    {"VQ scores 4096x1024x64", 4096, 1024, 64, false, true},
};

enum { ours, peak, eigen, onednn };  // order of the bursts

Tensor random_matrix(int64_t rows, int64_t columns, bool transposed, uint64_t stream) {
  return Tensor::uniform(transposed ? Shape{columns, rows} : Shape{rows, columns}, {1, stream}, -1, 1);
}

Rounds race(const Product& p) {
  const Tensor a = random_matrix(p.m, p.k, p.ta, 0), b = random_matrix(p.k, p.n, p.tb, 1);
  Tensor y({p.m, p.n});
  const auto rival = [&](Gemm gemm) {
    float* to = y.mutate<float>();
    return per(p.operations(), timed([=] { gemm(p.ta, p.tb, p.m, p.n, p.k, a.data<float>(), b.data<float>(), to); }));
  };
  Backend& cpu = backend(Device::cpu);
  std::vector<Burst> bursts = {per(p.operations(), timed([&] { cpu.matmul(a, p.ta, b, p.tb, {}, y); })), fma_peak(),
                               rival(of_chosen_kind().eigen_gemm)};
  if (Gemm gemm = onednn_gemm()) bursts.push_back(rival(gemm));
  return Rounds(bursts, 5, 3);
}

std::string gigaflops(double seconds_per_operation) { return rate(1e-9 / seconds_per_operation, "GFLOP"); }

std::vector<Check> products_race() {
  std::vector<std::vector<double>> times[4];
  std::vector<Check> shapes;
  for (const Product& p : products) {
    const Rounds rounds = race(p);
    for (size_t which = 0; which < (onednn_gemm() ? 4 : 3); ++which) times[which].push_back(rounds.of(which));
    shapes.push_back({std::string("of peak: ") + p.name, gigaflops(rounds.median(ours)), gigaflops(rounds.median(peak)),
                      middle(rounds.ratio(peak, ours))});
  }
  const std::vector<double> own = geometric_mean(times[ours]);
  const auto against = [&](size_t which, const char* what, Sense sense, double bound) {
    const std::vector<double> theirs = geometric_mean(times[which]);
    std::vector<double> ratio = theirs;
    for (size_t round = 0; round < own.size(); ++round) ratio[round] /= own[round];
    return Check{what, gigaflops(middle(own).median), gigaflops(middle(theirs).median), middle(ratio), sense, bound};
  };
  std::vector<Check> checks = {against(peak, "of measured FMA peak", Sense::at_least, 0.80),
                               against(eigen, "times Eigen", Sense::at_least, 1.4)};
  if (onednn_gemm()) checks.push_back(against(onednn, "times oneDNN", Sense::at_least, 1));
  checks.insert(checks.end(), shapes.begin(), shapes.end());
  return checks;
}

const Goal p1{"P1", "f32 matrix products of 13 shapes on one core, geometric mean", products_race};

}  // namespace
}  // namespace weft::bench
