// SPDX-License-Identifier: Apache-2.0
#include "weft/data/augment.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <numeric>
#include <vector>

#include "weft/engine/maths/maths.h"

namespace weft {
namespace {

// The random numbers of one image, in the order in which they are drawn.
class Draws {
 public:
  explicit Draws(const Random& key) : key_(key) {}
  Draws for_colours() const { return Draws(key_.fork(1)); }  // leaves the order of the others as it is
  double between(double low, double high) { return low + (high - low) * uniform_draw<double>(key_, next_++); }
  bool happens(double probability) { return between(0, 1) < probability; }

 private:
  const Random key_;
  uint64_t next_ = 0;
};

struct Box {
  double top, left, height, width;
};

Box draw_box(Draws& draws, const Augmentation& a, double height, double width) {
  const double area = draws.between(a.min_area, 1), bound = maths::log(a.max_stretch);
  const double stretch = maths::exp(draws.between(-bound, bound) / 2);
  const double h = std::min(1.0, std::sqrt(area) * stretch) * height,
               w = std::min(1.0, std::sqrt(area) / stretch) * width;
  const double top = draws.between(0, height - h), left = draws.between(0, width - w);
  return {top, left, h, w};
}

// Computes the view of one image in buffers that are reused. Loops run over the values of a row, and treat all channels
// equally.
template <class T> class View {
 public:
  View(int64_t height, int64_t width, int64_t channels)
      : height_(height),
        width_(width),
        channels_(channels),
        row_(width * channels),
        other_(static_cast<size_t>(height * row_)),
        line_(static_cast<size_t>(row_ + 2 * reach * channels)),
        across_(static_cast<size_t>(row_)) {}

  void make(const T* from, T* to, const Augmentation& a, Draws draws) {
    image_ = to;
    const bool flips = draws.happens(a.flip);
    cut(from, draw_box(draws, a, double(height_), double(width_)), flips);
    const double contrast = draws.between(1 - a.contrast, 1 + a.contrast);
    light(draws.between(1 - a.brightness, 1 + a.brightness), contrast);
    if (channels_ == 3 && (a.saturation > 0 || a.hue > 0 || a.grayscale > 0)) colour(a, draws.for_colours());
    const bool blurs = draws.happens(a.blur);
    const double deviation = draws.between(0.3, 1);
    if (blurs) blur(deviation);
    const bool erases = draws.happens(a.erase);
    const double area = draws.between(0.05, 0.2), stretch = maths::exp(draws.between(-0.5, 0.5));
    const double h = std::sqrt(area) * stretch * double(height_), w = std::sqrt(area) / stretch * double(width_);
    const Box hole{draws.between(0, double(height_) - h), draws.between(0, double(width_) - w), h, w};
    if (erases) erase(hole);
  }

 private:
  static constexpr int64_t reach = 2, taps = 2 * reach + 1;  // the radius and the width of the blur, in pixels
  using Rows = std::array<const T*, taps>;
  using Weights = std::array<T, taps>;
  struct Neighbours {
    int64_t first, second;
    T weight;  // of the second; the first has 1 - weight
  };

  int64_t size() const { return height_ * row_; }
  static Neighbours between(double at, int64_t extent) {
    const double inside = std::clamp(at - 0.5, 0.0, double(extent - 1));
    const auto first = int64_t(inside);
    return {first, std::min(first + 1, extent - 1), static_cast<T>(inside - double(first))};
  }
  static T interpolated(T first, T second, T weight) { return first * (1 - weight) + second * weight; }

  // Enlarges the box to the size of the image by linear interpolation, and flips it if requested.
  void cut(const T* from, const Box& box, bool flipped) {
    for (int64_t x = 0; x < width_; ++x) {
      const auto [first, second, weight] = between(box.left + (double(x) + 0.5) / double(width_) * box.width, width_);
      const int64_t to = (flipped ? width_ - 1 - x : x) * channels_;
      for (int64_t c = 0; c < channels_; ++c)
        across_[size_t(to + c)] = {first * channels_ + c, second * channels_ + c, weight};
    }
    T* line = line_.data();
    for (int64_t y = 0; y < height_; ++y) {
      const auto [first, second, weight] = between(box.top + (double(y) + 0.5) / double(height_) * box.height, height_);
      const T *above = from + first * row_, *below = from + second * row_;
      for (int64_t i = 0; i < row_; ++i) line[i] = interpolated(above[i], below[i], weight);
      T* to = image_ + y * row_;
      for (const Neighbours& at : across_) *to++ = interpolated(line[at.first], line[at.second], at.weight);
    }
  }

  void light(double brightness, double contrast) {
    const T factor = static_cast<T>(brightness * contrast);
    const T shift = static_cast<T>(brightness * (1 - contrast) * mean());
    for (int64_t i = 0; i < size(); ++i) image_[i] = std::min(std::max(image_[i] * factor + shift, T(0)), T(1));
  }
  // Accumulates eight independent sums, so that additions overlap.
  double mean() const {
    std::array<double, 8> sums = {};
    const int64_t rest = size() % 8;
    const T* at = image_;
    for (; at != image_ + size() - rest; at += 8)
      for (size_t k = 0; k < 8; ++k) sums[k] += double(at[k]);
    for (int64_t k = 0; k < rest; ++k) sums[size_t(k)] += double(at[k]);
    return std::accumulate(sums.begin(), sums.end(), 0.0) / double(size());
  }

  // The grey value is kept. Hue and saturation turn and stretch the other two axes of the YIQ space of colours.
  void colour(const Augmentation& a, Draws draws) {
    const double turn = 2 * std::numbers::pi * draws.between(-a.hue, a.hue);
    const double stretch = draws.between(1 - a.saturation, 1 + a.saturation);
    const double strength = draws.happens(a.grayscale) ? 0 : stretch;
    const double along = strength * maths::cos(turn), across = strength * maths::sin(turn);
    for (int64_t i = 0; i < size(); i += 3) {
      const double red = double(image_[i]), green = double(image_[i + 1]), blue = double(image_[i + 2]);
      const double grey = 0.299 * red + 0.587 * green + 0.114 * blue;
      const double p = 0.595716 * red - 0.274453 * green - 0.321263 * blue,
                   q = 0.211456 * red - 0.522591 * green + 0.311135 * blue;
      const double turned_p = along * p - across * q, turned_q = across * p + along * q;
      const auto set = [&](int64_t channel, double value) { image_[i + channel] = T(std::clamp(value, 0.0, 1.0)); };
      set(0, grey + 0.9563 * turned_p + 0.6210 * turned_q);
      set(1, grey - 0.2721 * turned_p - 0.6474 * turned_q);
      set(2, grey - 1.1070 * turned_p + 1.7046 * turned_q);
    }
  }

  void blur(double deviation) {
    const double side = maths::exp(-0.5 / (deviation * deviation)), far = maths::pow(side, 4),
                 all = 1 + 2 * side + 2 * far;
    const T near = static_cast<T>(side / all), distant = static_cast<T>(far / all);
    const Weights weights = {distant, near, static_cast<T>(1 / all), near, distant};
    Rows rows;
    for (int64_t y = 0; y < height_; ++y) {
      for (int64_t k = 0; k < taps; ++k)
        rows[size_t(k)] = image_ + std::clamp<int64_t>(y + k - reach, 0, height_ - 1) * row_;
      add_weighted(rows, weights, other_.data() + y * row_);
    }
    for (int64_t k = 0; k < taps; ++k) rows[size_t(k)] = line_.data() + k * channels_;
    for (int64_t y = 0; y < height_; ++y) {
      extend(other_.data() + y * row_);
      add_weighted(rows, weights, image_ + y * row_);
    }
  }
  void add_weighted(const Rows& rows, const Weights& weights, T* to) const {
    for (int64_t i = 0; i < row_; ++i) {
      T sum = 0;
      for (size_t k = 0; k < taps; ++k) sum += weights[k] * rows[k][i];
      to[i] = sum;
    }
  }
  // Copies a row to line_, with the first and the last pixel repeated `reach` times.
  void extend(const T* row) {
    T* to = line_.data();
    for (int64_t k = 0; k < reach; ++k) to = std::copy(row, row + channels_, to);
    to = std::copy(row, row + row_, to);
    for (int64_t k = 0; k < reach; ++k) to = std::copy(row + row_ - channels_, row + row_, to);
  }

  void erase(const Box& hole) {
    const auto bottom = std::min(height_, int64_t(hole.top + hole.height)),
               right = std::min(width_, int64_t(hole.left + hole.width));
    for (auto y = int64_t(hole.top); y < bottom; ++y)
      std::fill(image_ + y * row_ + int64_t(hole.left) * channels_, image_ + y * row_ + right * channels_, T(0));
  }

  const int64_t height_, width_, channels_, row_;  // row_ is the number of values in a row
  T* image_ = nullptr;
  std::vector<T> other_, line_;     // buffers of an image and of a row
  std::vector<Neighbours> across_;  // for each value of a row
};

}  // namespace

Tensor augment(const Tensor& images, std::span<const int64_t> samples, const Random& key,
               const Augmentation& augmentation) {
  const Shape& shape = images.shape();
  require(shape.rank() == 4, "augment: images are (n, height, width, channels), not ", shape);
  require(shape[0] == static_cast<int64_t>(samples.size()), "augment: ", samples.size(),
          " samples' numbers for images ", shape);
  require(augmentation.min_area > 0 && augmentation.min_area <= 1 && augmentation.max_stretch >= 1,
          "augment: a part of an image has an area in (0, 1], not ", augmentation.min_area, ", and a stretch of at ",
          "least 1, not ", augmentation.max_stretch);
  if (images.dtype() == DType::bf16) return augment(images.to(DType::f32), samples, key, augmentation).to(DType::bf16);
  Tensor views = Tensor::like(images);
  const int64_t each = shape.product(1, 4);
  visit_floating(images.dtype(), [&]<class T>() {
    if constexpr (std::is_floating_point_v<T>) {
      View<T> view(shape[1], shape[2], shape[3]);
      for (size_t i = 0; i < samples.size(); ++i)
        view.make(images.data<T>() + int64_t(i) * each, views.mutate<T>() + int64_t(i) * each, augmentation,
                  Draws(key.fork(static_cast<uint64_t>(samples[i]))));
    }
  });
  return views;
}

}  // namespace weft
