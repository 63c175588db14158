#pragma once
// An autoencoder with a dictionary in the middle: images (n, height, width, channels) become a grid of tokens of a
// quarter of their sides, each one of the quantizer's codes, and images again. (van den Oord et al., arXiv 1711.00937)
// What becomes of an image does not depend on the batch that it is in.
#include "engine/nn/init.h"
#include "engine/nn/sequential.h"
#include "losses/quantizers/quantizer.h"

namespace weft {

class VqVae final : public Module {
 public:
  struct Sizes {
    int64_t channels = 1;  // of images
    int64_t width = 32;    // channels of the first convolution
    int64_t dim = 64;      // of a token
  };
  VqVae(const std::string& name, const Sizes& sizes, const Init& init, std::unique_ptr<Quantizer> quantizer);

  struct Result {
    Var images;  // made of the codes
    Quantized tokens;
  };
  Result operator()(const Var& images, const Pass& pass, Communicator& comm);

  // As they are called: what stands here may be replaced, as by units of divided parameters (optim/sharded.h).
  Layer *encoder, *decoder;

  Quantizer& quantizer() { return *quantizer_; }
  // The last layer that the images go through on their way out: its weight is what adaptive weights compare losses by.
  Parameter& last_weight() { return *last_weight_; }

 private:
  Sequential encoder_, decoder_;
  std::unique_ptr<Quantizer> quantizer_;
  Parameter* last_weight_;
};

}  // namespace weft
