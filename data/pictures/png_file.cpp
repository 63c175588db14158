// SPDX-License-Identifier: Apache-2.0
#include <png.h>

#include "weft/data/files/deflate.h"  // max_deflate_ratio
#include "weft/data/files/input_file.h"
#include "weft/data/pictures/image_format.h"

namespace weft {
namespace {

// libpng's state while one file is read.
class PngReader {
 public:
  explicit PngReader(std::string_view file) {
    image_.version = PNG_IMAGE_VERSION;
    check(png_image_begin_read_from_memory(&image_, file.data(), file.size()));
    check_pixels(image_.height, image_.width);
    const int64_t pixels = int64_t{image_.height} * image_.width;
    if (pixels / 8 > static_cast<int64_t>(file.size()) * max_deflate_ratio)  // even if each takes one bit
      throw MalformedInput("the PNG is damaged: its header promises more pixels than it can hold");
    image_.flags |= PNG_IMAGE_FLAG_16BIT_sRGB;  // deep files are read as shallow ones are
    image_.format = image_.format & PNG_FORMAT_FLAG_COLOR ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY;
  }
  ~PngReader() { png_image_free(&image_); }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;

  PictureExtent extent() const { return {image_.height, image_.width, image_.format == PNG_FORMAT_RGB ? 3 : 1}; }
  void decode(uint8_t* values) {
    const png_color white{255, 255, 255};
    check(png_image_finish_read(&image_, &white, values, 0, nullptr));
  }

 private:
  void check(int done) const {
    if (!done) throw MalformedInput(std::string("the PNG is damaged: ") + image_.message);
  }
  png_image image_{};
};

}  // namespace

bool is_png(std::string_view file) {
  return file.size() >= 8 && png_sig_cmp(reinterpret_cast<png_const_bytep>(file.data()), 0, 8) == 0;
}

// The first chunk has the numbers, at fixed places: libpng would read on to the pixels, which may be far behind.
PictureExtent png_extent(std::string_view beginning) {
  if (beginning.size() < 29 || beginning.substr(12, 4) != "IHDR")
    throw MalformedInput("the PNG is damaged: it ends within its header");
  const auto number = [&](size_t at) {
    return static_cast<int64_t>(png_get_uint_32(reinterpret_cast<png_const_bytep>(beginning.data() + at)));
  };
  const int64_t width = number(16), height = number(20);
  check_pixels(height, width);
  return {height, width, beginning[25] & PNG_COLOR_MASK_COLOR ? 3 : 1};
}

Bitmap decode_png(std::string_view file) {
  PngReader reader(file);
  Bitmap picture{reader.extent(), {}};
  picture.values.resize(static_cast<size_t>(picture.extent.values()));
  reader.decode(picture.values.data());
  return picture;
}

}  // namespace weft
