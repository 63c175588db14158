// SPDX-License-Identifier: Apache-2.0
// Convolutions by cuDNN, or else as products of unfolded images.
#include "weft/engine/kernels/cuda/convolution_plan.h"
#include "weft/engine/kernels/cuda/cublas_product.h"
#include "weft/engine/kernels/cuda/cuda_backend.h"
#include "weft/engine/kernels/cuda/windows.cuh"
#include "weft/engine/kernels/cuda/words.cuh"

namespace weft {
namespace cuda {
namespace {

constexpr int64_t unfolded_bytes = int64_t{128} << 20;  // memory for unfolded images; at least one image is unfolded

// y[b][oy][ox][tap][channel word] = x if the tap is inside the image, else zero.
template <class Word> struct Unfold {
  Convolution c;
  int64_t words;  // per pixel
  const Word* x;
  Word* y;
  __device__ void operator()(int64_t i) const {
    const auto [window_tap, w] = split(i, words);
    const auto [window, tap] = split(window_tap, c.kernel_height * c.kernel_width);
    const auto [ky, kx] = split(tap, c.kernel_width);
    const auto [line, ox] = split(window, c.out_width);
    const auto [b, oy] = split(line, c.out_height);
    const int64_t row = oy * c.stride_y - c.pad_y + ky * c.dilation_y;
    const int64_t column = ox * c.stride_x - c.pad_x + kx * c.dilation_x;
    const bool inside = 0 <= row && row < c.height && 0 <= column && column < c.width;
    y[i] = inside ? x[((b * c.height + row) * c.width + column) * words + w] : Word{};
  }
};

// The adjoint as a gather: each pixel sums the taps that read it, in the order of the taps.
template <class X, class Y> struct Fold {
  Convolution c;
  const X* x;
  Y* y;
  __device__ void operator()(int64_t i) const {
    const auto [pixel, channel] = split(i, c.channels);
    const auto [line, column] = split(pixel, c.width);
    const auto [b, row] = split(line, c.height);
    Compute<X> sum = 0;
    for (int64_t ky = 0; ky < c.kernel_height; ++ky) {
      const int64_t oy = window_of_tap(row + c.pad_y - ky * c.dilation_y, c.stride_y, c.out_height);
      for (int64_t kx = 0; oy >= 0 && kx < c.kernel_width; ++kx) {
        const int64_t ox = window_of_tap(column + c.pad_x - kx * c.dilation_x, c.stride_x, c.out_width);
        if (ox < 0) continue;
        const int64_t place = ((b * c.out_height + oy) * c.out_width + ox) * c.kernel_height + ky;
        sum += Compute<X>(x[(place * c.kernel_width + kx) * c.channels + channel]);
      }
    }
    y[i] = static_cast<Y>(sum);
  }
};

// The extents of a convolution as a product: (windows x taps) (taps x out_channels).
struct Windows {
  int64_t per_image, taps, pixels;
  explicit Windows(const Convolution& c)
      : per_image(c.out_height * c.out_width),
        taps(c.kernel_height * c.kernel_width * c.channels),
        pixels(c.height * c.width) {}
};
// Whether unfolding the images would not change them.
bool pointwise(const Convolution& c) {
  return c.kernel_height * c.kernel_width == 1 && c.stride_y == 1 && c.stride_x == 1 && c.pad_y == 0 && c.pad_x == 0 &&
         c.out_height == c.height && c.out_width == c.width;
}

// By cuDNN, if that can save unfolding.
bool without_unfolding(ConvolutionPass pass, const Convolution& c, bool tf32, const Tensor& x, const Tensor& w,
                       const Tensor& y) {
  return !pointwise(c) && convolve_by_cudnn(pass, c, tf32, x, w, y);
}

template <class T> void unfold(const Convolution& c, const T* x, T* y) {
  const void* const from = x;
  void* const to = y;
  const int64_t pixel = c.channels * static_cast<int64_t>(sizeof(T));
  const int64_t taps = c.batch * c.out_height * c.out_width * c.kernel_height * c.kernel_width;
  Grain().with(from).with(to).with(pixel).visit([&]<class Word>() {
    const int64_t words = in_words<Word>(pixel);
    for_each(taps * words, Unfold<Word>{c, words, in_words<Word>(from), in_words<Word>(to)});
  });
}

// Calls run(geometry of some images, index of the first) for as many images at a time as unfold into unfolded_bytes.
template <class F> void for_images(const Convolution& c, size_t value_bytes, const F& run) {
  const Windows windows(c);
  const int64_t bytes = std::max<int64_t>(windows.per_image * windows.taps * static_cast<int64_t>(value_bytes), 1);
  const int64_t images = pointwise(c) ? c.batch : std::max<int64_t>(unfolded_bytes / bytes, 1);
  for (int64_t first = 0; first < c.batch; first += images) {
    Convolution part = c;
    part.batch = std::min(images, c.batch - first);
    run(part, first);
  }
}

// The unfolded images, or the images themselves if unfolding does not change them.
template <class T> class Unfolded {
 public:
  Unfolded(const Convolution& c, const T* x)
      : memory_(pointwise(c) ? 0 : c.batch * Windows(c).per_image * Windows(c).taps),
        data_(pointwise(c) ? x : memory_.data()) {
    if (!pointwise(c)) unfold(c, x, memory_.data());
  }
  const T* data() const { return data_; }

 private:
  Scratch<T> memory_;
  const T* data_;
};

}  // namespace
}  // namespace cuda

void CudaBackend::convolve(const Convolution& c, const Tensor& x, const Tensor& w, const Epilogue& epilogue,
                           Tensor& y) {
  if (y.size() == 0) return;
  const cuda::Windows windows(c);
  if (windows.taps == 0) {
    fill(0, y);
    return finish(epilogue, c.out_channels, y);
  }
  if (cuda::without_unfolding(cuda::ConvolutionPass::forward, c, tf32_, x, w, y))
    return finish(epilogue, c.out_channels, y);
  visit_floating(y.dtype(), [&]<class T>() {
    cuda::for_images(c, sizeof(T), [&](const Convolution& part, int64_t first) {
      const cuda::Unfolded<T> columns(part, x.data<T>() + first * windows.pixels * c.channels);
      const cuda::Product product{part.batch * windows.per_image, c.out_channels, windows.taps, 1, tf32_};
      const cuda::Operand<T> images{columns.data()}, weights{w.data<T>()};
      Tensor results = y.slice(first, first + part.batch);
      finish(product.run(images, weights, epilogue, results.mutate<T>()), c.out_channels, results);
    });
  });
}

// The columns stay in Compute<T>, so that the sum in each pixel is rounded once.
void CudaBackend::convolve_input_gradient(const Convolution& c, const Tensor& g, const Tensor& w, Tensor& dx) {
  if (g.size() == 0 || w.size() == 0) return fill(0, dx);
  if (cuda::without_unfolding(cuda::ConvolutionPass::input_gradient, c, tf32_, dx, w, g)) return;
  const cuda::Windows windows(c);
  visit_floating(dx.dtype(), [&]<class T>() {
    using C = Compute<T>;
    T* const to = dx.mutate<T>();
    cuda::for_images(c, sizeof(C), [&](const Convolution& part, int64_t first) {
      const cuda::Product product{part.batch * windows.per_image, windows.taps, c.out_channels, 1, tf32_};
      const cuda::Operand<T> slopes{g.data<T>() + first * windows.per_image * c.out_channels};
      const cuda::Operand<T> weights{w.data<T>(), true};
      T* const images = to + first * windows.pixels * c.channels;
      if (cuda::pointwise(c)) return product.run(slopes, weights, images);
      const cuda::Scratch<C> columns(product.m * product.n);
      product.run(slopes, weights, columns.data());
      cuda::for_each(part.batch * windows.pixels * c.channels, cuda::Fold<C, T>{part, columns.data(), images});
    });
  });
}

// The sum over the parts is in Compute<T>, and rounded once.
void CudaBackend::convolve_weight_gradient(const Convolution& c, const Tensor& x, const Tensor& g, Tensor& dw) {
  if (g.size() == 0 || dw.size() == 0) return fill(0, dw);
  if (cuda::without_unfolding(cuda::ConvolutionPass::weight_gradient, c, tf32_, x, dw, g)) return;
  const cuda::Windows windows(c);
  visit_floating(dw.dtype(), [&]<class T>() {
    using C = Compute<T>;
    constexpr bool rounded = !std::is_same_v<T, C>;
    Tensor wide = rounded ? Tensor(dw.shape(), dtype_of<C>, Device::cuda) : Tensor();
    Tensor& sum = rounded ? wide : dw;
    C* const to = sum.mutate<C>();
    cuda::for_images(c, sizeof(T), [&](const Convolution& part, int64_t first) {
      const cuda::Unfolded<T> columns(part, x.data<T>() + first * windows.pixels * c.channels);
      const cuda::Operand<T> slopes{g.data<T>() + first * windows.per_image * c.out_channels};
      const cuda::Product product{windows.taps, c.out_channels, part.batch * windows.per_image, 1, tf32_, first > 0};
      product.run(cuda::Operand<T>{columns.data(), true}, slopes, to);
    });
    if constexpr (rounded) cast(sum, dw);
  });
}

void CudaBackend::unfold(const Convolution& c, const Tensor& x, Tensor& y) {
  visit_floating(x.dtype(), [&]<class T>() { cuda::unfold(c, x.data<T>(), y.mutate<T>()); });
}

void CudaBackend::fold(const Convolution& c, const Tensor& x, Tensor& y) {
  visit_floating(x.dtype(), [&]<class T>() {
    cuda::for_each(y.size(), cuda::Fold<T, T>{c, x.data<T>(), y.mutate<T>()});
  });
}

}  // namespace weft
