// SPDX-License-Identifier: Apache-2.0
#include "weft/data/pictures/resize.h"

#include <algorithm>
#include <cmath>

#include "weft/engine/tensor/error.h"

namespace weft {
namespace {

constexpr int fraction_bits = 22;  // 255 of them fit into an int32_t

// The pixels of one axis of which a new pixel is a mean.
struct Taps {
  int64_t first = 0;
  std::vector<int32_t> weights;  // their sum is 2^fraction_bits
};

// For `to` new pixels that lie over `window` old ones, of which there are `from`, in the middle.
std::vector<Taps> taps(int64_t from, double window, int64_t to) {
  const double step = window / static_cast<double>(to), offset = (static_cast<double>(from) - window) / 2;
  const double reach = std::max(1.0, step);
  std::vector<Taps> all(static_cast<size_t>(to));
  for (int64_t i = 0; i < to; ++i) {
    const double centre = offset + (static_cast<double>(i) + 0.5) * step;
    const int64_t first = std::max<int64_t>(0, static_cast<int64_t>(std::floor(centre - reach + 0.5)));
    const int64_t last = std::min(from, static_cast<int64_t>(std::floor(centre + reach + 0.5)));
    std::vector<double> weights;
    double sum = 0;
    for (int64_t at = first; at < last; ++at) {
      weights.push_back(std::max(0.0, 1 - std::abs(static_cast<double>(at) + 0.5 - centre) / reach));
      sum += weights.back();
    }
    Taps& mine = all[static_cast<size_t>(i)];
    mine.first = first;
    for (const double weight : weights)
      mine.weights.push_back(static_cast<int32_t>(std::floor(weight / sum * (1 << fraction_bits) + 0.5)));
  }
  return all;
}

uint8_t rounded(int32_t sum) { return static_cast<uint8_t>(std::clamp(sum >> fraction_bits, 0, 255)); }

// Means of whole rows.
std::vector<uint8_t> resize_rows(const Bitmap& picture, const std::vector<Taps>& rows) {
  const auto row_size = static_cast<size_t>(picture.extent.width * picture.extent.channels);
  std::vector<uint8_t> result(rows.size() * row_size);
  uint8_t* to = result.data();
  std::vector<int32_t> sums(row_size);
  for (const auto& [first, weights] : rows) {
    std::fill(sums.begin(), sums.end(), 1 << (fraction_bits - 1));
    const uint8_t* from = picture.values.data() + static_cast<size_t>(first) * row_size;
    for (const int32_t weight : weights)
      for (int32_t& sum : sums) sum += weight * *from++;
    to = std::transform(sums.begin(), sums.end(), to, rounded);
  }
  return result;
}

// Means within one row.
template <int channels> void resize_row(const uint8_t* row, const std::vector<Taps>& columns, uint8_t* to) {
  for (const auto& [first, weights] : columns) {
    int32_t sums[channels];
    std::fill(sums, sums + channels, 1 << (fraction_bits - 1));
    const uint8_t* from = row + first * channels;
    for (const int32_t weight : weights)
      for (int c = 0; c < channels; ++c) sums[c] += weight * *from++;
    for (int c = 0; c < channels; ++c) *to++ = rounded(sums[c]);
  }
}

void copy_pixels(const std::vector<uint8_t>& from, int64_t copies, uint8_t* to) {
  for (const uint8_t value : from) to = std::fill_n(to, copies, value);
}

std::vector<uint8_t> resized(const Bitmap& picture, const PictureExtent& extent) {
  const auto [height, width, channels] = picture.extent;
  const auto of = [](int64_t a, int64_t b) { return static_cast<double>(a) / static_cast<double>(b); };
  const double scale = std::max(of(extent.height, height), of(extent.width, width));
  const auto window = [&](int64_t from, int64_t to) {
    return std::min(static_cast<double>(from), static_cast<double>(to) / scale);
  };
  const std::vector<uint8_t> rows = resize_rows(picture, taps(height, window(height, extent.height), extent.height));
  const std::vector<Taps> columns = taps(width, window(width, extent.width), extent.width);
  std::vector<uint8_t> result(static_cast<size_t>(extent.height * extent.width * channels));
  for (int64_t y = 0; y < extent.height; ++y) {
    const uint8_t* from = rows.data() + y * width * channels;
    uint8_t* to = result.data() + y * extent.width * channels;
    channels == 1 ? resize_row<1>(from, columns, to) : resize_row<3>(from, columns, to);
  }
  return result;
}

}  // namespace

void fit(const Bitmap& picture, const PictureExtent& extent, uint8_t* to) {
  const auto [height, width, channels] = picture.extent;
  require(channels == extent.channels || (channels == 1 && extent.channels == 3), "fit: ", channels,
          " channels cannot become ", extent.channels);
  const int64_t copies = extent.channels / channels;
  const bool same_size = height == extent.height && width == extent.width;
  copy_pixels(same_size ? picture.values : resized(picture, extent), copies, to);
}

PictureExtent common_extent(int64_t side, const PictureExtent& first, bool all_alike) {
  if (side > 0) return {side, side, first.channels};
  if (all_alike && std::max(first.height, first.width) <= default_side) return first;
  return {default_side, default_side, first.channels};
}

}  // namespace weft
