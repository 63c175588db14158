#include "data/augment.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace weft {
namespace {

// What chance decides about one image, in the order in which it is drawn.
class Draws {
 public:
  explicit Draws(const Random& key) : key_(key) {}
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
  const double area = draws.between(a.least_area, 1), bound = std::log(a.most_stretch);
  const double stretch = std::exp(draws.between(-bound, bound) / 2);
  const double h = std::min(1.0, std::sqrt(area) * stretch) * height,
               w = std::min(1.0, std::sqrt(area) / stretch) * width;
  const double top = draws.between(0, height - h), left = draws.between(0, width - w);
  return {top, left, h, w};
}

// One image and the room it is changed in.
template <class T> class View {
 public:
  View(int64_t height, int64_t width, int64_t channels)
      : height_(height), width_(width), channels_(channels), other_(static_cast<size_t>(height * width * channels)) {}

  void make(const T* from, T* to, const Augmentation& a, Draws draws) {
    image_ = to;
    cut(from, draw_box(draws, a, double(height_), double(width_)), draws.happens(a.flip));
    light(draws.between(1 - a.brightness, 1 + a.brightness), draws.between(1 - a.contrast, 1 + a.contrast));
    const bool blurs = draws.happens(a.blur);
    const double deviation = draws.between(0.3, 1);
    if (blurs) blur(deviation);
    const bool erases = draws.happens(a.erase);
    const double area = draws.between(0.05, 0.2), stretch = std::exp(draws.between(-0.5, 0.5));
    const double h = std::sqrt(area) * stretch * double(height_), w = std::sqrt(area) / stretch * double(width_);
    const Box hole{draws.between(0, double(height_) - h), draws.between(0, double(width_) - w), h, w};
    if (erases) erase(hole);
  }

 private:
  int64_t size() const { return height_ * width_ * channels_; }
  T* pixel(T* image, int64_t y, int64_t x) const { return image + (y * width_ + x) * channels_; }
  const T* pixel(const T* image, int64_t y, int64_t x) const { return image + (y * width_ + x) * channels_; }

  // The box, enlarged to the size of the image by linear interpolation, and turned around if it is flipped.
  void cut(const T* from, const Box& box, bool flipped) {
    for (int64_t y = 0; y < height_; ++y) {
      const auto [y0, y1, dy] = between(box.top + (double(y) + 0.5) / double(height_) * box.height, height_);
      for (int64_t x = 0; x < width_; ++x) {
        const auto [x0, x1, dx] = between(box.left + (double(x) + 0.5) / double(width_) * box.width, width_);
        T* to = pixel(image_, y, flipped ? width_ - 1 - x : x);
        for (int64_t c = 0; c < channels_; ++c) {
          const double above = pixel(from, y0, x0)[c] * (1 - dx) + pixel(from, y0, x1)[c] * dx;
          const double below = pixel(from, y1, x0)[c] * (1 - dx) + pixel(from, y1, x1)[c] * dx;
          to[c] = static_cast<T>(above * (1 - dy) + below * dy);
        }
      }
    }
  }
  struct Neighbours {
    int64_t first, second;
    double way;  // from the first to the second
  };
  static Neighbours between(double at, int64_t extent) {
    const double inside = std::clamp(at - 0.5, 0.0, double(extent - 1)), first = std::floor(inside);
    return {int64_t(first), std::min(int64_t(first) + 1, extent - 1), inside - first};
  }

  void light(double brightness, double contrast) {
    double mean = 0;
    for (int64_t i = 0; i < size(); ++i) mean += double(image_[i]) / double(size());
    for (int64_t i = 0; i < size(); ++i)
      image_[i] = static_cast<T>(std::clamp(brightness * (mean + contrast * (double(image_[i]) - mean)), 0.0, 1.0));
  }

  void blur(double deviation) {
    const double side = std::exp(-0.5 / (deviation * deviation)), far = std::pow(side, 4), all = 1 + 2 * side + 2 * far;
    const double weights[] = {far / all, side / all, 1 / all, side / all, far / all};
    smooth(image_, other_.data(), weights, 0, 1);
    smooth(other_.data(), image_, weights, 1, 0);
  }
  void smooth(const T* from, T* to, const double (&weights)[5], int64_t down, int64_t right) const {
    for (int64_t y = 0; y < height_; ++y)
      for (int64_t x = 0; x < width_; ++x)
        for (int64_t c = 0; c < channels_; ++c) {
          double sum = 0;
          for (int64_t k = -2; k <= 2; ++k)
            sum += weights[k + 2] * double(pixel(from, std::clamp<int64_t>(y + k * down, 0, height_ - 1),
                                                 std::clamp<int64_t>(x + k * right, 0, width_ - 1))[c]);
          pixel(to, y, x)[c] = static_cast<T>(sum);
        }
  }

  void erase(const Box& hole) {
    const auto bottom = std::min(height_, int64_t(hole.top + hole.height)),
               right = std::min(width_, int64_t(hole.left + hole.width));
    for (auto y = int64_t(hole.top); y < bottom; ++y)
      std::fill(pixel(image_, y, int64_t(hole.left)), pixel(image_, y, right), T(0));
  }

  const int64_t height_, width_, channels_;
  T* image_ = nullptr;
  std::vector<T> other_;
};

}  // namespace

Tensor augment(const Tensor& images, std::span<const int64_t> samples, const Random& key,
               const Augmentation& augmentation) {
  const Shape& shape = images.shape();
  require(shape.rank() == 4, "augment: images are (n, height, width, channels), not ", shape);
  require(shape[0] == static_cast<int64_t>(samples.size()), "augment: ", samples.size(),
          " samples' numbers for images ", shape);
  require(augmentation.least_area > 0 && augmentation.least_area <= 1 && augmentation.most_stretch >= 1,
          "augment: a part of an image has an area in (0, 1], not ", augmentation.least_area, ", and a stretch of at ",
          "least 1, not ", augmentation.most_stretch);
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
