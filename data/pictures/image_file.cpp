// SPDX-License-Identifier: Apache-2.0
#include "weft/data/pictures/image_file.h"

#include <algorithm>

#include "weft/data/files/input_file.h"
#include "weft/data/pictures/image_format.h"

namespace weft {
namespace {

constexpr uint64_t max_file_bytes = uint64_t{1} << 28, header_bytes = uint64_t{1} << 16;

std::string beginning_of(const InputFile& file, uint64_t bytes) {
  std::string text(std::min(bytes, file.bytes()), '\0');
  file.read(0, text.data(), text.size());
  return text;
}

// Calls f, and puts the name of the file in front of its error.
template <class F> auto named(const InputFile& file, F&& f) {
  if (file.bytes() == 0) file.malformed("empty");
  if (file.bytes() > max_file_bytes) file.malformed("larger than 256 MiB, the most for one picture");
  try {
    return f();
  } catch (const MalformedInput& error) {
    file.malformed(error.what());
  }
}

[[noreturn]] void neither() { throw MalformedInput("neither a PNG nor a JPEG file"); }

PictureExtent extent_in(const std::string& beginning) {
  if (is_png(beginning)) return png_extent(beginning);
  if (is_jpeg(beginning)) return jpeg_extent(beginning);
  neither();
}

}  // namespace

void check_pixels(int64_t height, int64_t width) {
  if (height < 1 || width < 1 || height > max_pixels / width)
    throw MalformedInput(std::to_string(height) + " x " + std::to_string(width) + " pixels, but at most " +
                         std::to_string(max_pixels) + " are read");
}

PictureExtent picture_extent(const std::filesystem::path& path) {
  const InputFile file(path);
  return named(file, [&] {
    const std::string beginning = beginning_of(file, header_bytes);
    if (file.bytes() <= header_bytes || !is_jpeg(beginning)) return extent_in(beginning);
    try {
      return extent_in(beginning);
    } catch (const MalformedInput&) {  // a long preview may stand in front of the header
      return extent_in(beginning_of(file, file.bytes()));
    }
  });
}

Bitmap read_picture(const std::filesystem::path& path, int64_t side) {
  const InputFile file(path);
  return named(file, [&] {
    const std::string bytes = beginning_of(file, file.bytes());
    if (is_png(bytes)) return decode_png(bytes);
    if (is_jpeg(bytes)) return decode_jpeg(bytes, side);
    neither();
  });
}

}  // namespace weft
