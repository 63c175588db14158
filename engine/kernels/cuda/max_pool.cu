// SPDX-License-Identifier: Apache-2.0
// Maxima over windows of an image. A maximum's cotangent is shared equally by the pixels that attain it.
#include <limits>

#include "weft/engine/kernels/cuda/cuda_backend.h"
#include "weft/engine/kernels/cuda/windows.cuh"

namespace weft {
namespace cuda {
namespace {

/// A channel of a window, from its place in the output.
struct Window {
  const Convolution& c;
  int64_t image, top, left, channel;

  __device__ Window(const Convolution& c, int64_t i) : c(c) {
    const auto [window, of_pixel] = split(i, c.channels);
    const auto [line, ox] = split(window, c.out_width);
    const auto [b, oy] = split(line, c.out_height);
    image = b, top = oy * c.stride_y - c.pad_y, left = ox * c.stride_x - c.pad_x, channel = of_pixel;
  }
  /// Calls body(offset) for the taps inside the image.
  template <class F> __device__ void for_each_tap(const F& body) const {
    for (int64_t ky = 0; ky < c.kernel_height; ++ky) {
      const int64_t row = top + ky * c.dilation_y;
      for (int64_t kx = 0; row >= 0 && row < c.height && kx < c.kernel_width; ++kx) {
        const int64_t column = left + kx * c.dilation_x;
        if (column >= 0 && column < c.width) body(((image * c.height + row) * c.width + column) * c.channels + channel);
      }
    }
  }
  /// One over the number of pixels that attain the maximum.
  template <class T> __device__ Compute<T> share(const T* x, T maximum) const {
    Compute<T> count = 0;
    for_each_tap([&](int64_t tap) { count += Compute<T>(x[tap]) == Compute<T>(maximum) ? 1 : 0; });
    return 1 / count;
  }
};

template <class T> struct MaxPool {
  Convolution c;
  const T* x;
  T* y;
  __device__ void operator()(int64_t i) const {
    Compute<T> largest = -std::numeric_limits<Compute<T>>::infinity();
    Window(c, i).for_each_tap([&](int64_t tap) {
      const Compute<T> value = Compute<T>(x[tap]);
      if (largest == largest && !(largest > value)) largest = value;  // NaN if the value is
    });
    y[i] = static_cast<T>(largest);
  }
};

/// What each pixel gets that attains the maximum.
template <class T> struct Slopes {
  Convolution c;
  const T *x, *y, *g;
  Compute<T>* slopes;
  __device__ void operator()(int64_t i) const { slopes[i] = Compute<T>(g[i]) * Window(c, i).share(x, y[i]); }
};

/// The adjoint as a gather: each pixel sums what it gets from its windows, in their order.
template <class T> struct Pullback {
  Convolution c;
  const T *x, *y;
  const Compute<T>* slopes;
  T* dx;
  __device__ void operator()(int64_t i) const {
    const auto [pixel, channel] = split(i, c.channels);
    const auto [line, column] = split(pixel, c.width);
    const auto [b, row] = split(line, c.height);
    const Compute<T> value = Compute<T>(x[i]);
    Compute<T> sum = 0;
    for (int64_t ky = c.kernel_height; ky-- > 0;) {
      const int64_t oy = window_of_tap(row + c.pad_y - ky * c.dilation_y, c.stride_y, c.out_height);
      for (int64_t kx = c.kernel_width; oy >= 0 && kx-- > 0;) {
        const int64_t ox = window_of_tap(column + c.pad_x - kx * c.dilation_x, c.stride_x, c.out_width);
        if (ox < 0) continue;
        const int64_t window = ((b * c.out_height + oy) * c.out_width + ox) * c.channels + channel;
        sum += slopes[window] * Compute<T>(value == Compute<T>(y[window]) ? 1 : 0);
      }
    }
    dx[i] = static_cast<T>(sum);
  }
};

template <class T> struct Tangent {
  Convolution c;
  const T *x, *y, *dx;
  T* dy;
  __device__ void operator()(int64_t i) const {
    const Window window(c, i);
    const Compute<T> maximum = Compute<T>(y[i]);
    Compute<T> sum = 0;
    window.for_each_tap(
        [&](int64_t tap) { sum += Compute<T>(dx[tap]) * Compute<T>(Compute<T>(x[tap]) == maximum ? 1 : 0); });
    dy[i] = static_cast<T>(sum * window.share(x, y[i]));
  }
};

}  // namespace
}  // namespace cuda

void CudaBackend::max_pool(const Convolution& c, const Tensor& x, Tensor& y) {
  visit_floating(x.dtype(), [&]<class T>() {
    cuda::for_each(y.size(), cuda::MaxPool<T>{c, x.data<T>(), y.mutate<T>()});
  });
}

void CudaBackend::max_pool_pullback(const Convolution& c, const Tensor& x, const Tensor& y, const Tensor& g,
                                    Tensor& dx) {
  visit_floating(x.dtype(), [&]<class T>() {
    const cuda::Scratch<Compute<T>> slopes(y.size());
    cuda::for_each(y.size(), cuda::Slopes<T>{c, x.data<T>(), y.data<T>(), g.data<T>(), slopes.data()});
    cuda::for_each(x.size(), cuda::Pullback<T>{c, x.data<T>(), y.data<T>(), slopes.data(), dx.mutate<T>()});
  });
}

void CudaBackend::max_pool_tangent(const Convolution& c, const Tensor& x, const Tensor& y, const Tensor& dx,
                                   Tensor& dy) {
  visit_floating(x.dtype(), [&]<class T>() {
    cuda::for_each(y.size(), cuda::Tangent<T>{c, x.data<T>(), y.data<T>(), dx.data<T>(), dy.mutate<T>()});
  });
}

}  // namespace weft
