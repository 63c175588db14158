// SPDX-License-Identifier: Apache-2.0
// Maxima over windows of an image. A maximum's cotangent is shared equally by the pixels that attain it.
#include <algorithm>
#include <limits>

#include "weft/engine/kernels/cpu/cpu_backend.h"
#include "weft/engine/kernels/cpu/simd.h"
#include "weft/engine/kernels/cpu/widen.h"

namespace weft {
namespace cpu {
namespace {

/// The taps of a window that are inside the image.
struct Window {
  int64_t first, rows, columns;  // the first tap's offset in the images
  int64_t down, across;          // from tap to tap

  template <class F> void for_each_tap(F&& body) const {
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j) body(first + i * down + j * across);
  }
};

/// The taps begin, ..., begin + count - 1 of one axis are inside.
struct Taps {
  int64_t begin, count;

  Taps(int64_t first, int64_t taps, int64_t dilation, int64_t size) {
    const auto before = [&](int64_t place) {
      return std::clamp<int64_t>((place - first + dilation - 1) / dilation, 0, taps);
    };
    begin = before(0);
    count = std::max<int64_t>(before(size) - begin, 0);
  }
};

/// Calls body(window, channel, channels left, offset in the windows) for a vector of channels of each window.
template <class T, class F> void for_each_window(const Convolution& c, F&& body) {
  int64_t at = 0;
  for (int64_t b = 0; b < c.batch; ++b)
    for (int64_t oy = 0; oy < c.out_height; ++oy)
      for (int64_t ox = 0; ox < c.out_width; ++ox, at += c.channels) {
        const int64_t top = oy * c.stride_y - c.pad_y, left = ox * c.stride_x - c.pad_x;
        const Taps rows(top, c.kernel_height, c.dilation_y, c.height);
        const Taps columns(left, c.kernel_width, c.dilation_x, c.width);
        const int64_t y = top + rows.begin * c.dilation_y, x = left + columns.begin * c.dilation_x;
        const Window window{((b * c.height + y) * c.width + x) * c.channels, rows.count, columns.count,
                            c.dilation_y * c.width * c.channels, c.dilation_x * c.channels};
        for (int64_t channel = 0; channel < c.channels; channel += lanes<T>)
          body(window, channel, c.channels - channel, at + channel);
      }
}

template <class T> Vector<T> ones_where(Vector<T> a, Vector<T> b) { return a == b ? broadcast(T(1)) : Vector<T>{}; }

template <class T> void max_pool(const Convolution& c, const T* x, T* y) {
  for_each_window<T>(c, [&](const Window& window, int64_t channel, int64_t left, int64_t at) {
    Vector<T> largest = broadcast(-std::numeric_limits<T>::infinity());
    window.for_each_tap([&](int64_t tap) {
      const Vector<T> value = load_next(x + tap + channel, left);
      const Vector<T> larger = largest > value ? largest : value;  // NaN if the value is
      largest = largest != largest ? largest : larger;
    });
    store_next(y + at, largest, left);
  });
}

/// One over the number of pixels that attain the maximum.
template <class T>
Vector<T> share_of(const Window& window, const T* x, Vector<T> maximum, int64_t channel, int64_t left) {
  Vector<T> count{};
  window.for_each_tap([&](int64_t tap) { count += ones_where<T>(load_next(x + tap + channel, left), maximum); });
  return broadcast(T(1)) / count;
}

template <class T> void max_pool_pullback(const Convolution& c, const T* x, const T* y, const T* g, T* dx) {
  std::fill_n(dx, c.batch * c.height * c.width * c.channels, T(0));
  for_each_window<T>(c, [&](const Window& window, int64_t channel, int64_t left, int64_t at) {
    const Vector<T> maximum = load_next(y + at, left);
    const Vector<T> slope = load_next(g + at, left) * share_of(window, x, maximum, channel, left);
    window.for_each_tap([&](int64_t tap) {
      T* const to = dx + tap + channel;
      const Vector<T> attained = ones_where<T>(load_next(x + tap + channel, left), maximum);
      store_next(to, load_next(to, left) + slope * attained, left);
    });
  });
}

template <class T> void max_pool_tangent(const Convolution& c, const T* x, const T* y, const T* dx, T* dy) {
  for_each_window<T>(c, [&](const Window& window, int64_t channel, int64_t left, int64_t at) {
    const Vector<T> maximum = load_next(y + at, left);
    Vector<T> sum{};
    window.for_each_tap([&](int64_t tap) {
      sum += load_next(dx + tap + channel, left) * ones_where<T>(load_next(x + tap + channel, left), maximum);
    });
    store_next(dy + at, sum * share_of(window, x, maximum, channel, left), left);
  });
}

}  // namespace
}  // namespace cpu

void CpuBackend::max_pool(const Convolution& c, const Tensor& x, Tensor& y) {
  visit_floating(x.dtype(), [&]<class T>() { cpu::max_pool<Compute<T>>(c, cpu::Input<T>(x), cpu::Output<T>(y)); });
}

void CpuBackend::max_pool_pullback(const Convolution& c, const Tensor& x, const Tensor& y, const Tensor& g,
                                   Tensor& dx) {
  visit_floating(x.dtype(), [&]<class T>() {
    cpu::max_pool_pullback<Compute<T>>(c, cpu::Input<T>(x), cpu::Input<T>(y), cpu::Input<T>(g), cpu::Output<T>(dx));
  });
}

void CpuBackend::max_pool_tangent(const Convolution& c, const Tensor& x, const Tensor& y, const Tensor& dx,
                                  Tensor& dy) {
  visit_floating(x.dtype(), [&]<class T>() {
    cpu::max_pool_tangent<Compute<T>>(c, cpu::Input<T>(x), cpu::Input<T>(y), cpu::Input<T>(dx), cpu::Output<T>(dy));
  });
}

}  // namespace weft
