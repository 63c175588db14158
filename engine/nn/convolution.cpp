// SPDX-License-Identifier: Apache-2.0
#include "weft/engine/nn/convolution.h"

#include <cmath>

namespace weft {

Conv2d::Conv2d(const std::string& name, int64_t in, int64_t out, YX kernel, const Init& init, const Sliding& sliding,
               Activation activation, Bias with_bias)
    : weight(name + ".weight",
             kaiming_uniform(init, name + ".weight", {kernel.y, kernel.x, in, out}, gain(activation))),
      bias(name + ".bias", with_bias == Bias::yes ? init.full({out}, 0) : Tensor()),
      sliding_(sliding),
      activation_(activation) {
  register_parameter(weight);
  register_parameter(bias);
}

Var Conv2d::apply(const Var& x, const Pass&) {
  return conv2d(x, bind(x, weight), bind(x, bias), sliding_, activation_);
}

// An output is a sum over the inputs of one kernel position in stride_y stride_x, so these count as its fan in.
static Tensor transposed(const Init& init, const std::string& name, const Shape& shape, YX stride) {
  const double taps = static_cast<double>(shape[0] * shape[1]) / static_cast<double>(stride.y * stride.x);
  return init.uniform(name, shape, std::sqrt(3 / std::max(1.0, taps * static_cast<double>(shape[3]))));
}

ConvTranspose2d::ConvTranspose2d(const std::string& name, int64_t in, int64_t out, YX kernel, const Init& init,
                                 const SlidingBack& sliding, Bias with_bias)
    : weight(name + ".weight", transposed(init, name + ".weight", {kernel.y, kernel.x, out, in}, sliding.stride)),
      bias(name + ".bias", with_bias == Bias::yes ? init.full({out}, 0) : Tensor()),
      sliding_(sliding) {
  register_parameter(weight);
  register_parameter(bias);
}

Var ConvTranspose2d::apply(const Var& x, const Pass&) {
  return conv_transpose2d(x, bind(x, weight), bind(x, bias), sliding_);
}

}  // namespace weft
