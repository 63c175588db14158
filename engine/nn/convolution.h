// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "weft/engine/nn/linear.h"
#include "weft/engine/ops/images.h"

namespace weft {

// activation(conv2d(x, w) + bias) on (batch, height, width, channels). The weight is (kernel height, kernel width, in,
// out).
class Conv2d final : public Layer {
 public:
  Conv2d(const std::string& name, int64_t in, int64_t out, YX kernel, const Init& init, const Sliding& sliding = {},
         Activation activation = {}, Bias bias = Bias::yes);

  Parameter weight, bias;

 private:
  Var apply(const Var& x, const Pass& pass) override;
  Sliding sliding_;
  Activation activation_;
};

// conv_transpose2d(x, w) + bias. The weight is (kernel height, kernel width, out, in), that of the Conv2d whose adjoint
// this is.
class ConvTranspose2d final : public Layer {
 public:
  ConvTranspose2d(const std::string& name, int64_t in, int64_t out, YX kernel, const Init& init,
                  const SlidingBack& sliding = {}, Bias bias = Bias::yes);

  Parameter weight, bias;

 private:
  Var apply(const Var& x, const Pass& pass) override;
  SlidingBack sliding_;
};

}  // namespace weft
