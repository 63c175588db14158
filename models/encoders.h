// SPDX-License-Identifier: Apache-2.0
#pragma once
// Networks that encode every image (n, height, width, channels) as a row of features. Layer norms are per pixel or row,
// so the features of an image do not depend on its batch.
#include "weft/engine/nn/init.h"
#include "weft/engine/nn/sequential.h"

namespace weft {

// Which network encodes pictures of one size.
struct EncoderChoice {
  std::string network = "conv";
  int64_t width = 32;                              // channels of its first convolution
  int64_t parts = 2;                               // rows and columns of the grid of features, of stages and residual
  int64_t height = 28, across = 28, channels = 1;  // of a picture

  int64_t features() const;
  std::unique_ptr<Sequential> make(const std::string& name, const Init& init) const;
};
std::vector<std::string> names_of_encoders();

// Three convolutions that halve height and width, each followed by a layer norm and a relu; then the mean and the
// maximum of each channel: 2 x 4 `width` features.
std::unique_ptr<Sequential> conv_encoder(const std::string& name, int64_t channels, int64_t width, const Init& init);

// Two linear layers, from all pixels to `width` features and from these to `width`, each followed by a layer norm and a
// relu.
std::unique_ptr<Sequential> mlp_encoder(const std::string& name, int64_t pixels, int64_t width, const Init& init);

// "stages" has the three convolutions of conv_encoder, and the features of each of them (stages.h), (parts^2 + 1) 7
// `width` in all. "residual" has a residual block in place of the second and of the third. "resnet18" is the form for
// pictures of 32 x 32 pixels: a convolution without a stride, and four stages of two blocks each; its features are the
// means of the last 8 `width` channels. Both have layer norms (residual_block.h).

// Maps features to the input of a contrastive loss: linear, layer norm, relu, linear.
std::unique_ptr<Sequential> projection_head(const std::string& name, int64_t features, int64_t hidden, int64_t out,
                                            const Init& init);

// The floating-point operations in products and convolutions of such layers when training on one picture: forward, and
// backward with respect to weights and inputs, but not the picture.
double training_flops(const std::vector<Parameter*>& parameters, const EncoderChoice& choice);

}  // namespace weft
