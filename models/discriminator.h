#pragma once
// The adversary of a network that makes images: a small convolutional network that looks at overlapping patches of an
// image (n, height, width, channels) and says of each, by the sign of a number, whether it is real or made. (PatchGAN:
// Isola et al., arXiv 1611.07004) Its norms are of a pixel, so that no image's verdicts depend on the batch.
#include "collectives/communicator.h"
#include "engine/nn/init.h"
#include "engine/nn/sequential.h"

namespace weft {

// Two convolutions, each of which halves the image's sides, and one to the verdicts: (n, height / 4, width / 4, 1).
std::unique_ptr<Sequential> patch_discriminator(const std::string& name, int64_t channels, int64_t width,
                                                const Init& init);

// The verdicts x on some images and y on what was made of them, on a tape of their own. Means are over the patches that
// the whole batch has of either kind, of which these may be a part, on all ranks of the group.
struct Trial {
  Trial(Layer& discriminator, const Tensor& images, const Tensor& made, int64_t patches, Communicator& comm);

  Tape tape;
  Var hinge;         // the discriminator's loss: mean of max(0, 1 - x) and max(0, 1 + y)
  Tensor pull;       // the gradient of the other side's loss, -mean y, by the images made
  double right = 0;  // verdicts, of both kinds
};

}  // namespace weft
