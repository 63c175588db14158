// SPDX-License-Identifier: Apache-2.0
#include "weft/models/encoders.h"

#include "weft/engine/kernels/scalar_ops.h"
#include "weft/engine/nn/convolution.h"
#include "weft/engine/nn/linear.h"
#include "weft/engine/nn/norm_layers.h"
#include "weft/engine/ops/reduce.h"
#include "weft/engine/ops/shape_ops.h"

namespace weft {
namespace {

constexpr Activation rectified = {.op = Unary::Relu};

// The mean and the maximum of each channel over all pixels.
Var mean_and_maximum(const Var& x) {
  const Shape& shape = x.shape();
  const Var pixels = reshape(x, {shape[0], shape[1] * shape[2], shape[3]});
  return concat({mean(pixels, 1), max(pixels, 1)}, 1);
}

}  // namespace

std::vector<std::string> names_of_encoders() { return {"conv", "mlp"}; }

std::unique_ptr<Sequential> EncoderChoice::make(const std::string& name, const Init& init) const {
  if (network == "conv") return conv_encoder(name, channels, width, init);
  require(network == "mlp", "there is no encoder called ", network);
  return mlp_encoder(name, height * across * channels, 8 * width, init);
}

std::unique_ptr<Sequential> conv_encoder(const std::string& name, int64_t channels, int64_t width, const Init& init) {
  auto net = std::make_unique<Sequential>(name);
  int64_t in = channels;
  for (const int64_t out : {width, 2 * width, 4 * width}) {
    net->add<Conv2d>(in, out, YX{3, 3}, init, Sliding{.stride = {2, 2}, .padding = {1, 1}});
    net->add<LayerNorm>(out, init, rectified);
    in = out;
  }
  net->then(mean_and_maximum);
  return net;
}

std::unique_ptr<Sequential> mlp_encoder(const std::string& name, int64_t pixels, int64_t width, const Init& init) {
  auto net = std::make_unique<Sequential>(name);
  net->then([](const Var& x) { return flatten(x); });
  for (const int64_t in : {pixels, width}) {
    net->add<Linear>(in, width, init);
    net->add<LayerNorm>(width, init, rectified);
  }
  return net;
}

std::unique_ptr<Sequential> projection_head(const std::string& name, int64_t features, int64_t hidden, int64_t out,
                                            const Init& init) {
  auto net = std::make_unique<Sequential>(name);
  net->add<Linear>(features, hidden, init);
  net->add<LayerNorm>(hidden, init, rectified);
  net->add<Linear>(hidden, out, init);
  return net;
}

double training_flops(const std::vector<Parameter*>& parameters, int64_t side) {
  double forward = 0, first = 0;
  for (const Parameter* parameter : parameters) {
    const Shape& shape = parameter->value.shape();
    if (shape.rank() < 2) continue;
    const bool convolution = shape.rank() == 4;
    if (convolution) side = (side + 1) / 2;
    forward += 2.0 * static_cast<double>(shape.size() * (convolution ? side * side : 1));
    if (first == 0) first = forward;
  }
  return 3 * forward - first;
}

}  // namespace weft
