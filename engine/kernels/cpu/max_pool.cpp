// SPDX-License-Identifier: Apache-2.0
// Maxima over windows of an image. A maximum's cotangent is shared equally by the pixels that attain it.
#include <algorithm>
#include <array>
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

/// Several vectors of a pixel's channels, or one, which may be the last and not whole. At every tap the maximum of a
/// vector waits for that of the tap before; those of several vectors wait beside each other.
template <class T, int count> struct Channels {
  int64_t left;  // elements, up to the pixel's last channel

  typedef std::array<Vector<T>, count> Vectors;

  Vectors load(const T* from) const {
    Vectors v;
    unroll<count>([&](int i) { v[i] = count == 1 ? load_next(from, left) : cpu::load(from + i * lanes<T>); });
    return v;
  }
  void store(T* to, const Vectors& v) const {
    unroll<count>([&](int i) { count == 1 ? store_next(to, v[i], left) : cpu::store(to + i * lanes<T>, v[i]); });
  }
};

constexpr int group_bytes = 128;  // of the vectors whose maxima are found beside each other

/// Calls body(window, channels, first channel, offset in the windows) for all channels of each window.
template <class T, class F> void for_each_window(const Convolution& c, F&& body) {
  constexpr int group = group_bytes / vector_bytes;
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
        int64_t channel = 0;
        for (; channel + group * lanes<T> <= c.channels; channel += group * lanes<T>)
          body(window, Channels<T, group>{c.channels - channel}, channel, at + channel);
        for (; channel < c.channels; channel += lanes<T>)
          body(window, Channels<T, 1>{c.channels - channel}, channel, at + channel);
      }
}

template <class T> Vector<T> ones_where(Vector<T> a, Vector<T> b) { return a == b ? broadcast(T(1)) : Vector<T>{}; }

template <class T> void max_pool(const Convolution& c, const T* x, T* y) {
  for_each_window<T>(c, [&]<int count>(const Window& window, Channels<T, count> channels, int64_t channel, int64_t at) {
    typename Channels<T, count>::Vectors largest;
    largest.fill(broadcast(-std::numeric_limits<T>::infinity()));
    window.for_each_tap([&](int64_t tap) {
      const auto value = channels.load(x + tap + channel);
      unroll<count>([&](int i) {
        const Vector<T> larger = largest[i] > value[i] ? largest[i] : value[i];  // NaN if the value is
        largest[i] = largest[i] != largest[i] ? largest[i] : larger;
      });
    });
    channels.store(y + at, largest);
  });
}

/// One over the number of pixels that attain the maximum.
template <class T, int count>
auto share_of(const Window& window, Channels<T, count> channels, const T* x, const auto& maximum) {
  typename Channels<T, count>::Vectors share{};
  window.for_each_tap([&](int64_t tap) {
    const auto value = channels.load(x + tap);
    unroll<count>([&](int i) { share[i] += ones_where<T>(value[i], maximum[i]); });
  });
  unroll<count>([&](int i) { share[i] = broadcast(T(1)) / share[i]; });
  return share;
}

template <class T> void max_pool_pullback(const Convolution& c, const T* x, const T* y, const T* g, T* dx) {
  std::fill_n(dx, c.batch * c.height * c.width * c.channels, T(0));
  for_each_window<T>(c, [&]<int count>(const Window& window, Channels<T, count> channels, int64_t channel, int64_t at) {
    const auto maximum = channels.load(y + at), cotangent = channels.load(g + at);
    auto slope = share_of(window, channels, x + channel, maximum);
    unroll<count>([&](int i) { slope[i] *= cotangent[i]; });
    window.for_each_tap([&](int64_t tap) {
      const auto value = channels.load(x + tap + channel);
      auto sum = channels.load(dx + tap + channel);
      unroll<count>([&](int i) { sum[i] += slope[i] * ones_where<T>(value[i], maximum[i]); });
      channels.store(dx + tap + channel, sum);
    });
  });
}

template <class T> void max_pool_tangent(const Convolution& c, const T* x, const T* y, const T* dx, T* dy) {
  for_each_window<T>(c, [&]<int count>(const Window& window, Channels<T, count> channels, int64_t channel, int64_t at) {
    const auto maximum = channels.load(y + at);
    typename Channels<T, count>::Vectors sum{};
    window.for_each_tap([&](int64_t tap) {
      const auto value = channels.load(x + tap + channel), tangent = channels.load(dx + tap + channel);
      unroll<count>([&](int i) { sum[i] += tangent[i] * ones_where<T>(value[i], maximum[i]); });
    });
    const auto share = share_of(window, channels, x + channel, maximum);
    unroll<count>([&](int i) { sum[i] *= share[i]; });
    channels.store(dy + at, sum);
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
