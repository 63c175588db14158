#pragma once
// Networks that make a row of features of every image (n, height, width, channels), of that image alone: their norms
// are of a pixel or a row, so that no image's features depend on the batch that it is in.
#include "engine/nn/init.h"
#include "engine/nn/sequential.h"

namespace weft {

// Three convolutions, each of which halves the image's sides and is followed by a layer norm and a relu; then the mean
// and the largest value of each channel: 2 x 4 `width` features.
std::unique_ptr<Sequential> conv_encoder(const std::string& name, int64_t channels, int64_t width, const Init& init);

// Linear layers from all pixels to `width` features and on to as many, each followed by a layer norm and a relu.
std::unique_ptr<Sequential> mlp_encoder(const std::string& name, int64_t pixels, int64_t width, const Init& init);

// What a contrastive loss sees instead of the features: linear, layer norm, relu, linear.
std::unique_ptr<Sequential> projection_head(const std::string& name, int64_t features, int64_t hidden, int64_t out,
                                            const Init& init);

// Floating-point operations of the products and convolutions of such layers in training, for one image: forward, and
// back by weights and by inputs, but not by the image. `side` is the image's, in pixels.
double training_flops(const std::vector<Parameter*>& parameters, int64_t side);

}  // namespace weft
