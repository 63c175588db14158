#pragma once
// Random views of images: what two of them have in common is what a contrastive network learns to see.
#include <span>

#include "engine/random.h"
#include "engine/tensor.h"

namespace weft {

// In this order. Each probability is that of an image to be changed at all.
struct Augmentation {
  double least_area = 0.4;       // of the part of the image that is cut out and enlarged to its size; 1 keeps all of it
  double most_stretch = 4 / 3.;  // of that part's sides against each other
  double flip = 0.5;             // left becomes right
  double brightness = 0.4;       // the most that light is multiplied by, above and below 1; always
  double contrast = 0.4;         // the same for differences from the mean; always
  double blur = 0.2;             // by a Gauss bell of 0.3 to 1 pixels
  double erase = 0.3;            // of a rectangle of a twentieth to a fifth of the image, to black
};

// One view of every image of (n, height, width, channels), floating, values in [0, 1]. `samples` are their global
// numbers: a sample's view depends on the key, its number and itself, not on its neighbours or on who asks for it.
Tensor augment(const Tensor& images, std::span<const int64_t> samples, const Random& key,
               const Augmentation& augmentation = {});

}  // namespace weft
