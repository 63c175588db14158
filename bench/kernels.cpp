// exp, tanh, softmax: elementary functions must run as vector code.
#include "bench/calibrate.h"
#include "bench/goal.h"
#include "bench/rivals.h"
#include "engine/backend.h"

namespace weft::bench {
namespace {

std::vector<Check> per_element(const Rounds& rounds, double bound) {
  return {{"ns per element", duration(rounds.median(0)), duration(rounds.median(1)), middle(scaled(rounds.of(0), 1e9)),
           Sense::at_most, bound}};
}

std::vector<Check> elementwise(Unary op, void (*rival)(int64_t, const float*, float*)) {
  constexpr int64_t n = 1 << 14;
  const Tensor x = Tensor::uniform({n}, {1}, -4, 4);
  Tensor y({n});
  float* to = y.mutate<float>();
  Backend& cpu = backend(Device::cpu);
  return per_element(
      Rounds({per(n, timed([&] { cpu.unary(op, {}, x, y); })), per(n, timed([&] { rival(n, x.data<float>(), to); }))}),
      0.15);
}

std::vector<Check> softmax() {
  const Tensor x = Tensor::uniform({1024, 1024}, {1}, -4, 4);
  Tensor y = Tensor::like(x);
  Backend& cpu = backend(Device::cpu);
  const double n = static_cast<double>(x.size());
  return per_element(
      Rounds({per(n, timed([&] { cpu.normalize_rows(Normalizer::softmax, x, y); })), per(1 / 4.0, plain_copy(4 * n))}),
      0.25);
}

const Goal exp_goal{"exp", "exp of 16 K floats (theirs: Eigen)", [] { return elementwise(Unary::Exp, eigen_exp); }};
const Goal tanh_goal{"tanh", "tanh of 16 K floats (theirs: Eigen)",
                     [] { return elementwise(Unary::Tanh, eigen_tanh); }};
const Goal softmax_goal{"softmax", "softmax of 1024 rows of 1024 floats (theirs: copying them)", softmax};

}  // namespace
}  // namespace weft::bench
