// SPDX-License-Identifier: Apache-2.0
#pragma once
// Residual networks (He et al., arXiv 1512.03385) on pictures (n, height, width, channels), with layer norms of pixels
// in place of batch norms: the features of a picture then depend on that picture only, on any number of ranks.
#include "weft/engine/nn/convolution.h"
#include "weft/engine/nn/norm_layers.h"

namespace weft {

// relu(second(relu(first(x))) + x), where both are a 3x3 convolution and a layer norm. If the number of channels or the
// size changes, x passes through a 1x1 convolution and a layer norm as well.
class ResidualBlock final : public Layer {
 public:
  ResidualBlock(const std::string& name, int64_t in, int64_t out, int64_t stride, const Init& init);

 private:
  Var apply(const Var& x, const Pass& pass) override;

  Conv2d first_, second_;
  LayerNorm first_norm_, second_norm_;
  std::unique_ptr<Conv2d> shortcut_;
  std::unique_ptr<LayerNorm> shortcut_norm_;
};

}  // namespace weft
