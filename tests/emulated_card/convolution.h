// SPDX-License-Identifier: Apache-2.0
#pragma once
// Convolutions as cuDNN describes them, computed by loops.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include "tests/emulated_card/stream.h"
#include "weft/engine/kernels/cuda/dnn.h"
#include "weft/engine/tensor/dtype.h"

namespace weft::cuda {

struct CudnnTensor {
  cudnnTensorFormat_t format;
  cudnnDataType_t type;
  int images = 0, channels, height, width;
  int64_t size() const { return int64_t{images} * channels * height * width; }
};
struct CudnnFilter {
  cudnnDataType_t type;
  cudnnTensorFormat_t format;
  int out_channels = 0, channels, height, width;
  int64_t size() const { return int64_t{out_channels} * channels * height * width; }
};
struct CudnnConvolution {
  int pad_y, pad_x, stride_y = 0, stride_x, dilation_y, dilation_x;
  cudnnConvolutionMode_t mode;
  cudnnDataType_t compute;
  cudnnMathType_t math = CUDNN_DEFAULT_MATH;
};

// What is computed of the two others.
enum class Result { windows, images, weights };

// All descriptors of a convolution.
struct Geometry {
  CudnnTensor x;
  CudnnFilter w;
  CudnnConvolution c;
  CudnnTensor y;

  static int count(int size, int kernel, int pad, int stride, int dilation) {
    return (size + 2 * pad - (kernel - 1) * dilation - 1) / stride + 1;
  }
  int out_height() const { return count(x.height, w.height, c.pad_y, c.stride_y, c.dilation_y); }
  int out_width() const { return count(x.width, w.width, c.pad_x, c.stride_x, c.dilation_x); }

  cudnnStatus_t check() const {
    if (x.images == 0 || w.out_channels == 0 || y.images == 0 || c.stride_y == 0) return CUDNN_STATUS_BAD_PARAM;
    if (x.channels != w.channels || y.images != x.images || y.channels != w.out_channels || y.height != out_height() ||
        y.width != out_width())
      return CUDNN_STATUS_BAD_PARAM;
    const bool nhwc = x.format == CUDNN_TENSOR_NHWC && w.format == x.format && y.format == x.format;
    const bool one_type = w.type == x.type && y.type == x.type && c.compute == CUDNN_DATA_FLOAT;
    const bool known = x.type == CUDNN_DATA_FLOAT || (x.type == CUDNN_DATA_BFLOAT16 && c.math != CUDNN_FMA_MATH);
    return nhwc && one_type && known ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_NOT_SUPPORTED;
  }
  size_t workspace() const { return size_t{4} * static_cast<size_t>(w.height * w.width * y.height + 1); }

  // Calls f(pixel, window, tap) for every tap of every window that is inside the image.
  template <class F> void for_taps(const F& f) const {
    const bool flipped = c.mode == CUDNN_CONVOLUTION;
    const int64_t taps = int64_t{w.height} * w.width;
    for (int64_t window = 0; window < int64_t{y.images} * y.height * y.width; ++window)
      for (int64_t tap = 0; tap < taps; ++tap) {
        const int64_t image = window / (y.height * y.width), place = window % (y.height * y.width);
        const int64_t row = place / y.width * c.stride_y - c.pad_y + tap / w.width * c.dilation_y;
        const int64_t column = place % y.width * c.stride_x - c.pad_x + tap % w.width * c.dilation_x;
        if (0 <= row && row < x.height && 0 <= column && column < x.width)
          f((image * x.height + row) * x.width + column, window, flipped ? taps - 1 - tap : tap);
      }
  }
};

inline float to_tf32(float x) { return std::bit_cast<float>((std::bit_cast<uint32_t>(x) + 0x1000u) & ~0x1fffu); }

inline size_t bytes_of(cudnnDataType_t type) { return type == CUDNN_DATA_BFLOAT16 ? sizeof(BFloat16) : sizeof(float); }

template <class T> std::vector<float> values_of(const void* data, int64_t size) {
  const T* const from = static_cast<const T*>(data);
  return std::vector<float>(from, from + size);
}

struct ConvolutionWork {
  Geometry g;
  Result what;
  const void *x, *w, *y;  // the result is one of them
  void *result, *workspace;
  float alpha, beta;

  void access(cudaStream_t stream) const {
    const auto one = [&](const void* data, int64_t size, Result role) {
      const bool writes = what == role;
      const size_t bytes = static_cast<size_t>(size) * bytes_of(g.x.type);
      if (!writes || beta != 0) stream->access(data, bytes, false, "cuDNN");
      if (writes) stream->access(data, bytes, true, "cuDNN");
    };
    one(x, g.x.size(), Result::images);
    one(w, g.w.size(), Result::weights);
    one(y, g.y.size(), Result::windows);
    stream->access(workspace, g.workspace(), true, "cuDNN");
  }

  std::vector<float> sums(const std::vector<float>& images, const std::vector<float>& weights,
                          const std::vector<float>& windows) const {
    const int64_t channels = g.x.channels, outs = g.y.channels, taps = int64_t{g.w.height} * g.w.width;
    const int64_t size = what == Result::images ? g.x.size() : what == Result::weights ? g.w.size() : g.y.size();
    std::vector<float> sum(static_cast<size_t>(size));
    g.for_taps([&](int64_t pixel, int64_t window, int64_t tap) {
      for (int64_t k = 0; k < outs; ++k) {
        const int64_t first_x = pixel * channels, at_y = window * outs + k, first_w = (k * taps + tap) * channels;
        for (int64_t channel = 0; channel < channels; ++channel) {
          const auto at_x = static_cast<size_t>(first_x + channel), at_w = static_cast<size_t>(first_w + channel);
          const auto at = static_cast<size_t>(at_y);
          if (what == Result::windows) sum[at] += images[at_x] * weights[at_w];
          if (what == Result::images) sum[at_x] += windows[at] * weights[at_w];
          if (what == Result::weights) sum[at_w] += windows[at] * images[at_x];
        }
      }
    });
    return sum;
  }

  template <class T> void run() const {
    const auto operand = [&](const void* data, int64_t size, Result role) {
      std::vector<float> values = role == what ? std::vector<float>() : values_of<T>(data, size);
      if (g.x.type == CUDNN_DATA_FLOAT && g.c.math != CUDNN_FMA_MATH)
        std::ranges::transform(values, values.begin(), to_tf32);
      return values;
    };
    const std::vector<float> sum = sums(operand(x, g.x.size(), Result::images), operand(w, g.w.size(), Result::weights),
                                        operand(y, g.y.size(), Result::windows));
    T* const to = static_cast<T*>(result);
    for (size_t i = 0; i < sum.size(); ++i)
      to[i] = T(alpha * sum[i] + (beta == 0 ? 0 : beta * static_cast<float>(to[i])));
    std::fill_n(static_cast<char*>(workspace), g.workspace(), char{1});
  }
};

}  // namespace weft::cuda
