// SPDX-License-Identifier: Apache-2.0
#pragma once
// Pictures in files, as tests write them.
#include <cstdio>

#include <jpeglib.h>
#include <png.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "weft/data/pictures/bitmap.h"

namespace weft {

inline void write_bytes(const std::filesystem::path& file, const std::string& bytes) {
  std::filesystem::create_directories(file.parent_path());
  std::ofstream(file, std::ios::binary) << bytes;
}

// A picture whose values rise along both axes, differently in each channel.
inline Bitmap slope(int64_t height, int64_t width, int64_t channels, int64_t start = 0) {
  Bitmap picture{{height, width, channels}, {}};
  for (int64_t y = 0; y < height; ++y)
    for (int64_t x = 0; x < width; ++x)
      for (int64_t c = 0; c < channels; ++c)
        picture.values.push_back(static_cast<uint8_t>((start + 100 * y / height + 100 * x / width + 20 * c) % 256));
  return picture;
}

inline std::string png_of(const Bitmap& picture, png_uint_32 format = 0) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.height = static_cast<png_uint_32>(picture.extent.height);
  image.width = static_cast<png_uint_32>(picture.extent.width);
  image.format = format ? format : picture.extent.channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
  png_alloc_size_t bytes = 0;
  png_image_write_to_memory(&image, nullptr, &bytes, 0, picture.values.data(), 0, nullptr);
  std::string file(bytes, '\0');
  if (!png_image_write_to_memory(&image, file.data(), &bytes, 0, picture.values.data(), 0, nullptr)) std::abort();
  file.resize(bytes);
  return file;
}

inline std::string jpeg_of(const Bitmap& picture, bool progressive = false) {
  jpeg_compress_struct state{};
  jpeg_error_mgr errors;
  state.err = jpeg_std_error(&errors);
  jpeg_create_compress(&state);
  unsigned char* bytes = nullptr;
  unsigned long count = 0;
  jpeg_mem_dest(&state, &bytes, &count);
  state.image_height = static_cast<JDIMENSION>(picture.extent.height);
  state.image_width = static_cast<JDIMENSION>(picture.extent.width);
  state.input_components = static_cast<int>(picture.extent.channels);
  state.in_color_space = picture.extent.channels == 1   ? JCS_GRAYSCALE
                         : picture.extent.channels == 4 ? JCS_CMYK
                                                        : JCS_RGB;
  jpeg_set_defaults(&state);
  jpeg_set_quality(&state, 95, TRUE);
  if (progressive) jpeg_simple_progression(&state);
  jpeg_start_compress(&state, TRUE);
  auto* row = const_cast<uint8_t*>(picture.values.data());
  for (; state.next_scanline < state.image_height; row += picture.extent.width * picture.extent.channels)
    jpeg_write_scanlines(&state, &row, 1);
  jpeg_finish_compress(&state);
  jpeg_destroy_compress(&state);
  std::string file(reinterpret_cast<char*>(bytes), count);
  std::free(bytes);
  return file;
}

}  // namespace weft
