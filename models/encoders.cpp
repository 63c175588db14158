// SPDX-License-Identifier: Apache-2.0
#include "weft/models/encoders.h"

#include <algorithm>

#include "weft/engine/kernels/scalar_ops.h"
#include "weft/engine/nn/convolution.h"
#include "weft/engine/nn/linear.h"
#include "weft/engine/nn/norm_layers.h"
#include "weft/engine/ops/reduce.h"
#include "weft/engine/ops/shape_ops.h"
#include "weft/models/residual_block.h"
#include "weft/models/stages.h"

namespace weft {
namespace {

constexpr Activation rectified = {.op = Unary::Relu};

// (n, height x width, channels)
Var pixels_of(const Var& x) { return reshape(x, {x.shape()[0], x.shape()[1] * x.shape()[2], x.shape()[3]}); }

Var mean_of_channels(const Var& x) { return mean(pixels_of(x), 1); }

// The mean and the maximum of each channel over all pixels.
Var mean_and_maximum(const Var& x) {
  const Var pixels = pixels_of(x);
  return concat({mean(pixels, 1), max(pixels, 1)}, 1);
}

// A stage of a network: its channels in units of the width of the network, and its convolution or its residual blocks,
// of which the first has the stride.
struct Stage {
  int64_t channels, stride, blocks;  // no block: a convolution
};

std::vector<Stage> stages_of(const std::string& network) {
  if (network == "residual") return {{1, 2, 0}, {2, 2, 1}, {4, 2, 1}};
  if (network == "resnet18") return {{1, 1, 0}, {1, 1, 2}, {2, 2, 2}, {4, 2, 2}, {8, 2, 2}};
  return {{1, 2, 0}, {2, 2, 0}, {4, 2, 0}};
}

std::unique_ptr<Sequential> make_stage(const std::string& name, const Stage& stage, int64_t in, int64_t width,
                                       const Init& init) {
  auto net = std::make_unique<Sequential>(name);
  const int64_t out = stage.channels * width;
  if (stage.blocks == 0) {
    net->add<Conv2d>(in, out, YX{3, 3}, init, Sliding{.stride = {stage.stride, stage.stride}, .padding = {1, 1}});
    net->add<LayerNorm>(out, init, rectified);
  }
  for (int64_t block = 0; block < stage.blocks; ++block)
    net->add<ResidualBlock>(block == 0 ? in : out, out, block == 0 ? stage.stride : 1, init);
  return net;
}

// For each convolution of a network, in the order of its parameters, the pixels of its result.
std::vector<int64_t> pixels_of_results(const EncoderChoice& choice) {
  std::vector<int64_t> all;
  YX size = {choice.height, choice.across};
  int64_t in = choice.channels;
  for (const auto& [channels, stride, blocks] : stages_of(choice.network)) {
    size = {(size.y + stride - 1) / stride, (size.x + stride - 1) / stride};
    const bool shortcut = blocks > 0 && (stride > 1 || in != channels * choice.width);
    all.insert(all.end(), static_cast<size_t>(blocks == 0 ? 1 : 2 * blocks + shortcut), size.y * size.x);
    in = channels * choice.width;
  }
  return all;
}

}  // namespace

std::vector<std::string> names_of_encoders() { return {"conv", "mlp", "stages", "residual", "resnet18"}; }

int64_t EncoderChoice::features() const {
  if (network != "stages" && network != "residual") return 8 * width;
  int64_t all = 0, y = height, x = across;
  for (const Stage& stage : stages_of(network)) {
    y = (y + stage.stride - 1) / stage.stride;
    x = (x + stage.stride - 1) / stage.stride;
    all += (std::min(parts, y) * std::min(parts, x) + 1) * stage.channels * width;
  }
  return all;
}

std::unique_ptr<Sequential> EncoderChoice::make(const std::string& name, const Init& init) const {
  if (network == "conv") return conv_encoder(name, channels, width, init);
  if (network == "mlp") return mlp_encoder(name, height * across * channels, 8 * width, init);
  const std::vector<std::string> names = names_of_encoders();
  require(std::find(names.begin(), names.end(), network) != names.end(), "there is no encoder called ", network);
  auto net = std::make_unique<Sequential>(name);
  auto stages = std::make_unique<Stages>(parts);
  int64_t in = channels, number = 0;
  for (const Stage& stage : stages_of(network)) {
    auto made = make_stage(name + ".stage" + std::to_string(number++), stage, in, width, init);
    in = stage.channels * width;
    if (network == "resnet18")
      net->append(std::move(made));
    else
      stages->add(std::move(made));
  }
  if (network == "resnet18")
    net->then(mean_of_channels);
  else
    net->append(std::move(stages));
  return net;
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

double training_flops(const std::vector<Parameter*>& parameters, const EncoderChoice& choice) {
  const std::vector<int64_t> pixels = pixels_of_results(choice);
  size_t convolution = 0;
  double forward = 0, first = 0;
  for (const Parameter* parameter : parameters) {
    const Shape& shape = parameter->value.shape();
    if (shape.rank() < 2) continue;
    const int64_t results = shape.rank() == 4 ? pixels.at(convolution++) : 1;
    forward += 2.0 * static_cast<double>(shape.size() * results);
    if (first == 0) first = forward;
  }
  return 3 * forward - first;
}

}  // namespace weft
