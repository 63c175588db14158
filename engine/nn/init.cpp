// SPDX-License-Identifier: Apache-2.0
#include "weft/engine/nn/init.h"

#include "weft/engine/kernels/scalar_ops.h"

#include <algorithm>
#include <cmath>

namespace weft {

Random named(Random key, std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return key.fork(hash);
}

Tensor Init::uniform(std::string_view name, const Shape& shape, double bound) const {
  return Tensor::uniform(shape, named(key, name), -bound, bound, dtype, device);
}
Tensor Init::normal(std::string_view name, const Shape& shape, double deviation) const {
  return Tensor::normal(shape, named(key, name), 0, deviation, dtype, device);
}

Fans fans(const Shape& weight) {
  require(weight.rank() >= 2, "fans: a weight has at least two axes, not ", weight);
  const double kernel = static_cast<double>(weight.product(0, weight.rank() - 2));
  return {std::max(1.0, kernel * static_cast<double>(weight[-2])),
          std::max(1.0, kernel * static_cast<double>(weight[-1]))};
}

double gain(const Activation& activation) {
  if (activation.identity()) return 1;
  return activation.op == Unary::Tanh ? 5.0 / 3 : std::sqrt(2);
}

// A uniform value in [-b, b) has the deviation b / sqrt(3).
static double kaiming(const Shape& shape, double gain) { return gain / std::sqrt(fans(shape).in); }
static double xavier(const Shape& shape, double gain) {
  return gain * std::sqrt(2 / (fans(shape).in + fans(shape).out));
}

Tensor kaiming_uniform(const Init& init, std::string_view name, const Shape& shape, double gain) {
  return init.uniform(name, shape, std::sqrt(3) * kaiming(shape, gain));
}
Tensor kaiming_normal(const Init& init, std::string_view name, const Shape& shape, double gain) {
  return init.normal(name, shape, kaiming(shape, gain));
}
Tensor xavier_uniform(const Init& init, std::string_view name, const Shape& shape, double gain) {
  return init.uniform(name, shape, std::sqrt(3) * xavier(shape, gain));
}
Tensor xavier_normal(const Init& init, std::string_view name, const Shape& shape, double gain) {
  return init.normal(name, shape, xavier(shape, gain));
}

}  // namespace weft
