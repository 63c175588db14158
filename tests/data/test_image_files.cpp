// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>

#include <cmath>
#include <cstdlib>

#include "tests/data/picture_files.h"
#include "tests/support/catch.h"
#include "tests/support/scratch_folder.h"
#include "weft/data/files/input_file.h"
#include "weft/data/pictures/image_file.h"
#include "weft/data/pictures/resize.h"

namespace weft {
namespace {

using Catch::Contains;

Bitmap read_back(const std::string& bytes, int64_t side = 0) {
  const ScratchFolder folder;
  write_bytes(folder / "picture", bytes);
  const Bitmap picture = read_picture(folder / "picture", side);
  if (side == 0) CHECK(picture_extent(folder / "picture") == picture.extent);
  return picture;
}

std::string complaint(const std::string& bytes) {
  const ScratchFolder folder;
  write_bytes(folder / "picture", bytes);
  try {
    read_picture(folder / "picture");
  } catch (const MalformedInput& error) {
    CHECK_THAT(error.what(), Contains((folder / "picture").string()));
    return error.what();
  }
  return "nothing";
}

int largest_difference(const Bitmap& a, const Bitmap& b) {
  REQUIRE(a.extent == b.extent);
  int most = 0;
  for (size_t i = 0; i < a.values.size(); ++i) most = std::max(most, std::abs(a.values[i] - b.values[i]));
  return most;
}

std::string big_endian(uint32_t number) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(number >> shift);
  return bytes;
}

TEST_CASE("a PNG has the values that were written, grey or coloured") {
  for (const int64_t channels : {1, 3}) {
    const Bitmap picture = slope(7, 13, channels);
    CHECK(largest_difference(read_back(png_of(picture)), picture) == 0);
  }
}

TEST_CASE("transparent parts of a PNG become white, and deep values shallow") {
  Bitmap picture{{1, 2, 4}, {10, 20, 30, 255, 10, 20, 30, 0}};
  const Bitmap opaque = read_back(png_of(picture, PNG_FORMAT_RGBA));
  CHECK(opaque.values == std::vector<uint8_t>{10, 20, 30, 255, 255, 255});
}

TEST_CASE("a JPEG has nearly the values that were written: grey, coloured, progressive") {
  for (const bool progressive : {false, true})
    for (const int64_t channels : {1, 3}) {
      const Bitmap picture = slope(40, 56, channels);
      CHECK(largest_difference(read_back(jpeg_of(picture, progressive)), picture) <= 6);
    }
}

TEST_CASE("a JPEG of four inks becomes red, green and blue") {
  Bitmap inks{{16, 16, 4}, {}}, expected{{16, 16, 3}, {}};
  for (int i = 0; i < 256; ++i) {
    inks.values.insert(inks.values.end(), {200, 100, 50, 128});
    expected.values.insert(expected.values.end(), {100, 50, 25});
  }
  CHECK(largest_difference(read_back(jpeg_of(inks)), expected) <= 4);
}

TEST_CASE("a JPEG is decoded smaller, but at least twice as large as needed") {
  const std::string file = jpeg_of(slope(400, 640, 3));
  CHECK(read_back(file, 201).extent == PictureExtent{400, 640, 3});
  CHECK(read_back(file, 100).extent == PictureExtent{200, 320, 3});
  CHECK(read_back(file, 50).extent == PictureExtent{100, 160, 3});
  CHECK(read_back(file, 1).extent == PictureExtent{50, 80, 3});
}

TEST_CASE("a file that is no picture, empty, or cut anywhere, is refused") {
  CHECK_THAT(complaint(""), Contains("empty"));
  CHECK_THAT(complaint("GIF89a"), Contains("neither a PNG nor a JPEG"));
  for (const std::string& whole : {png_of(slope(9, 9, 3)), jpeg_of(slope(40, 40, 3)), jpeg_of(slope(40, 40, 3), true)})
    for (size_t length = 1; length < whole.size() - 16; length += 5) {
      INFO("cut to " << length << " of " << whole.size());
      CHECK(complaint(whole.substr(0, length)) != "nothing");
    }
}

TEST_CASE("a PNG with damaged pixels is refused") {
  std::string file = png_of(slope(9, 9, 3));
  char& byte = file[file.find("IDAT") + 12];
  byte = static_cast<char>(byte ^ 0x40);
  CHECK_THAT(complaint(file), Contains("the PNG is damaged"));
}

TEST_CASE("a header that promises billions of pixels is refused before memory is taken") {
  std::string png = png_of(slope(9, 9, 3));
  png.replace(16, 8, big_endian(1'000'000) + big_endian(1'000'000));
  CHECK(complaint(png) != "nothing");
  std::string jpeg = jpeg_of(slope(16, 16, 3));
  const size_t frame = jpeg.find("\xff\xc0");
  REQUIRE(frame != std::string::npos);
  jpeg.replace(frame + 5, 4, "\xff\x00\xff\x00", 4);
  CHECK_THAT(complaint(jpeg), Contains("65280 x 65280 pixels, but at most 67108864"));
}

TEST_CASE("a name that is no file is refused: a folder, a pipe, nothing") {
  const ScratchFolder folder;
  CHECK_THROWS_AS(read_picture(folder / "nothing"), MissingInput);
  CHECK_THROWS_AS(read_picture(folder.path), MalformedInput);
  REQUIRE(mkfifo((folder / "pipe").c_str(), 0600) == 0);
  CHECK_THROWS_AS(read_picture(folder / "pipe"), MalformedInput);
}

std::vector<uint8_t> fitted(const Bitmap& picture, const PictureExtent& extent) {
  std::vector<uint8_t> values(static_cast<size_t>(extent.values()));
  fit(picture, extent, values.data());
  return values;
}

TEST_CASE("a picture of the right size is kept as it is, and a grey one may become coloured") {
  const Bitmap picture = slope(5, 6, 1);
  CHECK(fitted(picture, {5, 6, 1}) == picture.values);
  const auto coloured = fitted(picture, {5, 6, 3});
  for (size_t i = 0; i < coloured.size(); ++i) CHECK(coloured[i] == picture.values[i / 3]);
  CHECK_THROWS_WITH(fitted(slope(5, 6, 3), {5, 6, 1}), Contains("3 channels cannot become 1"));
}

TEST_CASE("a slope that is resized is a slope, and one value stays that value") {
  for (const auto& [from, to] : {std::pair{100, 10}, {10, 100}, {37, 23}}) {
    const auto small = fitted(slope(from, from, 1), {to, to, 1});
    const int64_t margin = to / from / 2 + 1;
    for (int64_t y = margin; y + margin < to; ++y)
      for (int64_t x = margin; x + margin < to; ++x) {
        const double expected = 100 * (double(y) + double(x) + 1) / to - 100.0 / from;
        CHECK(std::abs(small[size_t(y * to + x)] - expected) <= 3);
      }
    const Bitmap even{{from, 2 * from, 3}, std::vector<uint8_t>(size_t(6 * from * from), 201)};
    for (const uint8_t value : fitted(even, {to, to, 3})) REQUIRE(value == 201);
  }
}

TEST_CASE("half the size is a mean under a triangle, and what is over is cut off on both sides") {
  const Bitmap row{{2, 8, 1}, {0, 0, 80, 80, 160, 160, 0, 0, 0, 0, 80, 80, 160, 160, 0, 0}};
  // The middle four columns, 80 80 160 160. A new pixel has a mean with weights 1, 3, 3, 1 of eight.
  CHECK(fitted(row, {1, 2, 1}) == std::vector<uint8_t>{80, 130});
}

TEST_CASE("fine stripes become grey, not other stripes") {
  Bitmap stripes{{64, 64, 1}, {}};
  for (int i = 0; i < 64 * 64; ++i) stripes.values.push_back(i % 2 ? 255 : 0);
  const auto small = fitted(stripes, {9, 9, 1});
  for (int y = 0; y < 9; ++y)
    for (int x = 1; x < 8; ++x) CHECK(std::abs(small[size_t(9 * y + x)] - 127.5) < 12);
}

TEST_CASE("the common size is the pictures' own if it is small and the same") {
  CHECK(common_extent(0, {28, 30, 1}, true) == PictureExtent{28, 30, 1});
  CHECK(common_extent(0, {28, 30, 1}, false) == PictureExtent{64, 64, 1});
  CHECK(common_extent(0, {65, 30, 3}, true) == PictureExtent{64, 64, 3});
  CHECK(common_extent(32, {28, 30, 1}, true) == PictureExtent{32, 32, 1});
}

}  // namespace
}  // namespace weft
