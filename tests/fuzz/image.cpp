// SPDX-License-Identifier: Apache-2.0
// A PNG or JPEG file: its header agrees with what is decoded, also at a fraction of the size, and it can be resized.
#include "tests/fuzz/memory_file.h"
#include "weft/data/pictures/image_file.h"
#include "weft/data/pictures/resize.h"

namespace weft::fuzz {

void read(std::string_view bytes) {
  static const MemoryFile place;
  place.hold(bytes);
  const PictureExtent extent = picture_extent(place.path());
  if (extent.values() > 1 << 24) return;  // decoding would take most of the time
  const Bitmap whole = read_picture(place.path()), small = read_picture(place.path(), 8);
  must(whole.extent == extent, "the header says what the picture is");
  must(small.extent.height <= extent.height && small.extent.channels == extent.channels, "a fraction is a fraction");
  const PictureExtent to{8, 8, 3};
  std::vector<uint8_t> values(static_cast<size_t>(to.values()));
  fit(whole, to, values.data());
  fit(small, to, values.data());
}

}  // namespace weft::fuzz
