// SPDX-License-Identifier: Apache-2.0
#pragma once
// The discriminator of a network that generates images: a small convolutional network that classifies overlapping
// patches of an image (n, height, width, channels) as real or generated, by the sign of its output. (PatchGAN: Isola et
// al., arXiv 1611.07004) Layer norms are per pixel, so the outputs for an image do not depend on its batch.
#include "weft/collectives/communicator.h"
#include "weft/engine/nn/init.h"
#include "weft/engine/nn/sequential.h"

namespace weft {

// Two convolutions that halve height and width, and one to the outputs (n, height / 4, width / 4, 1).
std::unique_ptr<Sequential> patch_discriminator(const std::string& name, int64_t channels, int64_t width,
                                                const Init& init);

// Applies the discriminator to real images, with outputs x, and to generated ones, with outputs y, on its own tape.
// Means are over the `patches` of each kind in the whole batch, on all ranks of the group; these images may be a part
// of it.
struct Trial {
  Trial(Layer& discriminator, const Tensor& images, const Tensor& made, int64_t patches, Communicator& comm);

  Tape tape;
  Var hinge;     // the discriminator's loss: mean of max(0, 1 - x) and max(0, 1 + y)
  Tensor pull;   // the gradient of the generator's loss, -mean y, with respect to the generated images
  Tensor right;  // the number of correctly classified patches of both kinds, f64
};

}  // namespace weft
