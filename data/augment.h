// SPDX-License-Identifier: Apache-2.0
#pragma once
// Random views of images. A contrastive network learns what two views of the same image have in common.
#include <span>

#include "weft/engine/tensor/random.h"
#include "weft/engine/tensor/tensor.h"

namespace weft {

// The random changes, in the order in which they are applied.
struct Augmentation {
  double min_area = 0.4;        // the smallest fraction of the area that is cut out and enlarged; 1 keeps everything
  double max_stretch = 4 / 3.;  // the largest ratio of the sides of that part, relative to the image
  double flip = 0.5;            // the probability of exchanging left and right
  double brightness = 0.4;      // values are multiplied by 1 - brightness to 1 + brightness
  double contrast = 0.4;        // differences from the mean are multiplied by 1 - contrast to 1 + contrast
  double blur = 0.2;            // the probability of a Gaussian blur, sigma 0.3 to 1 pixel
  double erase = 0.3;           // the probability of blackening a rectangle of a twentieth to a fifth of the image
  // Of images with three channels, red, green and blue; others have no colours to change. Right after the contrast.
  double saturation = 0;  // differences from the grey value are multiplied by 1 - saturation to 1 + saturation
  double hue = 0;         // colours turn by up to this part of the colour wheel, either way; 0.5 turns to any colour
  double grayscale = 0;   // the probability of leaving the grey value only
};

// Returns one view of every image of (n, height, width, channels), floating, with values in [0, 1]. `samples` are the
// global numbers of the images. A view depends only on the key, the sample's number and its image, so every rank that
// computes it gets the same one.
Tensor augment(const Tensor& images, std::span<const int64_t> samples, const Random& key,
               const Augmentation& augmentation = {});

}  // namespace weft
