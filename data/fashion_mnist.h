// SPDX-License-Identifier: Apache-2.0
#pragma once
// Fashion-MNIST: 60,000 training and 10,000 test images of clothes, 28 x 28 grey pixels, ten classes.
#include <array>

#include "weft/data/pictures.h"

namespace weft {

namespace fashion_mnist {
constexpr int64_t classes = 10;
constexpr std::array<const char*, classes> class_names = {"T-shirt", "trousers", "pullover", "dress", "coat",
                                                          "sandal",  "shirt",    "sneaker",  "bag",   "boot"};
constexpr int64_t max_images = 1 << 18;  // larger files are refused; the training part has 60,000 images
}  // namespace fashion_mnist

// Loads from `folder`, or if it is empty from $WEFT_DATA, or if that is unset from the folder of Debian's package
// dataset-fashion-mnist.
Pictures load_fashion_mnist(const std::filesystem::path& folder = {});

}  // namespace weft
