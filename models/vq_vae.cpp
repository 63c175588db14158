// SPDX-License-Identifier: Apache-2.0
#include "weft/models/vq_vae.h"

#include <cmath>

#include "weft/engine/kernels/scalar_ops.h"
#include "weft/engine/nn/convolution.h"
#include "weft/engine/ops/elementwise.h"

namespace weft {

VqVae::VqVae(const std::string& name, const Sizes& sizes, const Init& init, std::unique_ptr<Quantizer> quantizer)
    : encoder(&encoder_),
      decoder(&decoder_),
      encoder_(name + ".encoder"),
      decoder_(name + ".decoder"),
      quantizer_(std::move(quantizer)) {
  const Activation relu{.op = Unary::Relu};
  const Sliding halving{.stride = {2, 2}, .padding = {1, 1}}, same{.padding = {1, 1}};
  const SlidingBack doubling{halving};
  const int64_t narrow = sizes.width, wide = 2 * sizes.width;
  encoder_.add<Conv2d>(sizes.channels, narrow, YX{4, 4}, init, halving, relu);
  encoder_.add<Conv2d>(narrow, wide, YX{4, 4}, init, halving, relu);
  encoder_.add<Conv2d>(wide, wide, YX{3, 3}, init, same, relu);
  Parameter& bias = encoder_.add<Conv2d>(wide, sizes.dim, YX{1, 1}, init).bias;
  // Without a bias, tokens of empty image parts would be zero, which some quantizers cannot normalize.
  bias.value = init.uniform(bias.name, {sizes.dim}, 1 / std::sqrt(static_cast<double>(wide)));
  decoder_.add<Conv2d>(sizes.dim, wide, YX{3, 3}, init, same, relu);
  decoder_.add<ConvTranspose2d>(wide, narrow, YX{4, 4}, init, doubling);
  decoder_.then([](const Var& x) { return weft::relu(x); });
  last_weight_ = &decoder_.add<ConvTranspose2d>(narrow, sizes.channels, YX{4, 4}, init, doubling).weight;
  register_module(encoder_);
  register_module(*quantizer_);
  register_module(decoder_);
}

VqVae::Result VqVae::operator()(const Var& images, const Pass& pass, Communicator& comm) {
  const Quantized tokens = (*quantizer_)((*encoder)(images, pass), pass, comm);
  return {(*decoder)(tokens.values, pass), tokens};
}

}  // namespace weft
