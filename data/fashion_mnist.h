#pragma once
// Fashion-MNIST: 60,000 training and 10,000 test images of clothes, 28 x 28 grey pixels, ten classes.
#include <array>
#include <filesystem>

#include "data/batches.h"

namespace weft {

struct FashionMnist {
  static constexpr int64_t classes = 10;
  static constexpr std::array<const char*, classes> class_names = {"T-shirt", "trousers", "pullover", "dress", "coat",
                                                                   "sandal",  "shirt",    "sneaker",  "bag",   "boot"};
  static constexpr int64_t most_images = 1 << 18;  // of either part that are read; it has 60,000
  LabelledImages train, test;
  std::filesystem::path folder;  // where they are from
};

// From `folder`; if that is empty from $WEFT_DATA, and without that from where Debian's dataset-fashion-mnist puts it.
FashionMnist load_fashion_mnist(const std::filesystem::path& folder = {});

}  // namespace weft
