#pragma once
// Where parameters begin. Every parameter draws from a stream named after itself, so one Init serves a whole network
// and a further layer changes none of the others.
#include <string_view>

#include "engine/backend.h"

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

// How many inputs one output of a weight sums over, and how many outputs one input reaches. Weights are (in, out), with
// the kernel's extents in front if they have any.
struct Fans {
  double in, out;
};
Fans fans(const Shape& weight);

// Keeps the variance of values (kaiming, by the fan in) or of values and cotangents alike (xavier, by both fans). The
// gain makes up for what the activation that follows takes away.
double gain(const Activation& activation);  // 1 for none, 5/3 for tanh, sqrt(2) for relu and its kin
Tensor kaiming_uniform(const Init& init, std::string_view name, const Shape& shape, double gain = 1);
Tensor kaiming_normal(const Init& init, std::string_view name, const Shape& shape, double gain = 1);
Tensor xavier_uniform(const Init& init, std::string_view name, const Shape& shape, double gain = 1);
Tensor xavier_normal(const Init& init, std::string_view name, const Shape& shape, double gain = 1);

}  // namespace weft
