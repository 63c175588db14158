// SPDX-License-Identifier: Apache-2.0
#pragma once
// What image_file.cpp asks of each format. Errors are MalformedInput, whose text lacks the file.
#include <string_view>

#include "weft/data/pictures/bitmap.h"

namespace weft {

bool is_png(std::string_view file);
PictureExtent png_extent(std::string_view beginning);  // needs the first 64 KiB of a file at most
Bitmap decode_png(std::string_view file);

bool is_jpeg(std::string_view file);
PictureExtent jpeg_extent(std::string_view beginning);  // may need more than the first 64 KiB
Bitmap decode_jpeg(std::string_view file, int64_t side);

void check_pixels(int64_t height, int64_t width);  // at most max_pixels

}  // namespace weft
