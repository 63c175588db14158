// SPDX-License-Identifier: Apache-2.0
#include "apps/shared/report/picture.h"

#include <png.h>

#include <algorithm>
#include <cmath>
#include <cstring>

namespace weft {

std::string png(const Tensor& picture) {
  const Shape& shape = picture.shape();
  const int64_t channels = shape.rank() == 3 ? shape[2] : 1;
  require(picture.dtype() == DType::u8 && (shape.rank() == 2 || shape.rank() == 3) &&
              (channels == 1 || channels == 3) && shape[0] > 0 && shape[1] > 0,
          "png: u8 (height, width) with one or three channels is needed, not ", picture.dtype(), " ", shape);
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.height = static_cast<png_uint_32>(shape[0]);
  image.width = static_cast<png_uint_32>(shape[1]);
  image.format = channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
  png_alloc_size_t bytes = PNG_IMAGE_PNG_SIZE_MAX(image);
  std::string file(bytes, '\0');
  const bool done = png_image_write_to_memory(&image, file.data(), &bytes, 0, picture.data(), 0, nullptr) != 0;
  require(done, "png: ", image.message);
  file.resize(bytes);
  return file;
}

Tensor grid(const Tensor& pictures, int64_t columns) {
  const Shape& shape = pictures.shape();
  require(pictures.dtype() == DType::u8 && shape.rank() == 4 && shape[0] > 0 && columns > 0,
          "grid: u8 (count, height, width, channels) is needed, not ", pictures.dtype(), " ", shape);
  const int64_t count = shape[0], height = shape[1], channels = shape[3], row_bytes = shape[2] * channels;
  columns = std::min(columns, count);
  const int64_t rows = (count + columns - 1) / columns;
  Tensor whole = Tensor::full({rows * (height + 1) - 1, columns * (shape[2] + 1) - 1, channels}, 128, DType::u8);
  const auto* from = pictures.data<uint8_t>();
  for (int64_t i = 0; i < count * height; ++i, from += row_bytes) {
    const int64_t picture = i / height, y = picture / columns * (height + 1) + i % height;
    const int64_t x = picture % columns * (shape[2] + 1);
    std::memcpy(whole.mutate<uint8_t>() + (y * whole.shape()[1] + x) * channels, from, static_cast<size_t>(row_bytes));
  }
  return whole;
}

Tensor as_pixels(const Tensor& values) {
  Tensor pixels(values.shape(), DType::u8);
  const std::vector<double> all = values.values();
  std::transform(all.begin(), all.end(), pixels.mutate<uint8_t>(), [](double value) {
    return static_cast<uint8_t>(std::lround(255 * (value > 0 ? std::min(value, 1.0) : 0)));  // NaN is black
  });
  return pixels;
}

}  // namespace weft
