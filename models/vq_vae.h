// SPDX-License-Identifier: Apache-2.0
#pragma once
// An autoencoder with a quantizer between encoder and decoder (van den Oord et al., arXiv 1711.00937): images (n,
// height, width, channels) become a grid of tokens of a quarter of their height and width, the quantizer replaces each
// token by a code, and the decoder reconstructs the images. The result for an image does not depend on its batch.
#include "weft/engine/nn/init.h"
#include "weft/engine/nn/sequential.h"
#include "weft/losses/quantizers/quantizer.h"

namespace weft {

class VqVae final : public Module {
 public:
  static constexpr int64_t token_side = 4;  // pixels; height and width of images are multiples of it

  struct Sizes {
    int64_t channels = 1;  // of images
    int64_t width = 32;    // channels of the first convolution
    int64_t dim = 64;      // of a token
  };
  VqVae(const std::string& name, const Sizes& sizes, const Init& init, std::unique_ptr<Quantizer> quantizer);

  struct Result {
    Var images;  // reconstructed from the codes
    Quantized tokens;
  };
  Result operator()(const Var& images, const Pass& pass, Communicator& comm);

  // The layers that a call uses. They may be replaced, for example by units of divided parameters
  // (optim/parallel/sharded.h).
  Layer *encoder, *decoder;

  Quantizer& quantizer() { return *quantizer_; }
  // The weight of the decoder's last layer, with respect to which adaptive_weight() compares the gradients of losses.
  Parameter& last_weight() { return *last_weight_; }

 private:
  Sequential encoder_, decoder_;
  std::unique_ptr<Quantizer> quantizer_;
  Parameter* last_weight_;
};

}  // namespace weft
