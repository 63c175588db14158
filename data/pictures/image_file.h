// SPDX-License-Identifier: Apache-2.0
#pragma once
// PNG and JPEG files. The first bytes of a file say which it is, whatever its name. Transparent parts of a PNG become
// white. The orientation that a camera has noted is not applied. A file that is cut or damaged is a MalformedInput.
#include <filesystem>

#include "weft/data/pictures/bitmap.h"

namespace weft {

PictureExtent picture_extent(const std::filesystem::path& file);  // from the header alone

// A JPEG much larger than needed is decoded at a half, a quarter or an eighth of its size, which takes less time. Its
// shorter side then still has at least twice `side` pixels. 0: at its size.
Bitmap read_picture(const std::filesystem::path& file, int64_t side = 0);

}  // namespace weft
