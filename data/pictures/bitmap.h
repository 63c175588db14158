// SPDX-License-Identifier: Apache-2.0
#pragma once
// One picture in memory, and what is said about pictures that are not in memory yet.
#include <cstdint>
#include <string>
#include <vector>

namespace weft {

struct PictureExtent {
  int64_t height = 0, width = 0, channels = 0;  // one channel is grey, three are red, green and blue

  int64_t values() const { return height * width * channels; }
  bool operator==(const PictureExtent&) const = default;
};

struct Bitmap {
  PictureExtent extent;
  std::vector<uint8_t> values;  // (height, width, channels)
};

// A picture of more pixels is refused before memory is taken for it.
constexpr int64_t max_pixels = int64_t{1} << 26;

}  // namespace weft
