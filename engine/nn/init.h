// SPDX-License-Identifier: Apache-2.0
#pragma once
// The initialisation of parameters. Every parameter draws from a stream that its name selects, so one Init serves a
// whole network, and adding a layer does not change the others.
#include <string_view>

#include "weft/engine/kernels/backend.h"

namespace weft {

struct Init {
  Random key;
  DType dtype = DType::f32;
  Device device = Device::cpu;

  Tensor uniform(std::string_view name, const Shape& shape, double bound) const;  // in [-bound, bound)
  Tensor normal(std::string_view name, const Shape& shape, double deviation) const;
  Tensor full(const Shape& shape, double value) const { return Tensor::full(shape, value, dtype, device); }
};

Random named(Random key, std::string_view name);

// The number of inputs that an output of a weight sums over, and the number of outputs that an input contributes to.
// Weights are (in, out), after the extents of the kernel if there is one.
struct Fans {
  double in, out;
};
Fans fans(const Shape& weight);

// These preserve the variance of values (kaiming, by the fan in), or of values and cotangents (xavier, by both fans).
// The gain compensates for the activation that follows.
double gain(const Activation& activation);  // 1 for none, 5/3 for tanh, sqrt(2) for relu and its kin
Tensor kaiming_uniform(const Init& init, std::string_view name, const Shape& shape, double gain = 1);
Tensor kaiming_normal(const Init& init, std::string_view name, const Shape& shape, double gain = 1);
Tensor xavier_uniform(const Init& init, std::string_view name, const Shape& shape, double gain = 1);
Tensor xavier_normal(const Init& init, std::string_view name, const Shape& shape, double gain = 1);

}  // namespace weft
