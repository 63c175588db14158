// SPDX-License-Identifier: Apache-2.0
#pragma once
// What --data may name, recognised by what is there.
#include <variant>

#include "weft/data/pictures.h"
#include "weft/data/pictures/bitmap.h"
#include "weft/data/pictures/picture_list.h"

namespace weft {

struct WantedPictures {
  std::filesystem::path path;            // empty: $WEFT_DATA, or Debian's Fashion-MNIST
  int64_t side = 0;                      // of every picture, in pixels; 0: see common_extent
  int64_t max_bytes = int64_t{4} << 30;  // of all pictures together
};

// More pictures than may be in memory. The text says what would fit.
struct TooManyPictures : Error {
  using Error::Error;
};
void check_bytes(int64_t pictures, const PictureExtent& extent, const WantedPictures& wanted);

// The pictures of files that hold many, divided and resized; or the list of those that are in files of their own,
// which are still to be read.
std::variant<Pictures, PictureList> open_pictures(const WantedPictures& wanted);

// "60,000 pictures for training and 10,000 for tests, 28 x 28, grey, 10 classes"
std::string summary(const Pictures& pictures);
// Notes that pictures were resized, if they were.
std::string note_of_resizing(const PictureExtent& extent);

}  // namespace weft
