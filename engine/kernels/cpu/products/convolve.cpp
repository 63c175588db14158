// SPDX-License-Identifier: Apache-2.0
#include "weft/engine/kernels/cpu/products/convolve.h"

#include <algorithm>

#include "weft/engine/kernels/cpu/products/gemm_tile.h"
#include "weft/engine/kernels/cpu/products/winograd.h"
#include "weft/engine/kernels/cpu/scratch.h"
#include "weft/engine/kernels/cpu/simd.h"

namespace weft::cpu {
namespace {

// A tile of the column matrix (a row per output pixel, a column per weight of one output channel) fills half of L2.
constexpr int64_t tile_bytes = 384 * 1024;

int64_t row_length(const Convolution& c) { return c.kernel_height * c.kernel_width * c.channels; }
int64_t row_count(const Convolution& c) { return c.batch * c.out_height * c.out_width; }

template <class T> int64_t rows_per_tile(const Convolution& c) {
  return std::max<int64_t>(tile_bytes / int64_t(sizeof(T)) / std::max<int64_t>(row_length(c), 1), 16);
}

/// Calls body(column, image, length) for consecutive runs of the rows [first, first + count) of the column matrix, in
/// ascending order. `column` is an offset into the tile, `image` one into x, or -1 in the padding. Neighbouring taps
/// are one run unless dilation separates them.
template <class F> void for_each_run(const Convolution& c, int64_t first, int64_t count, F&& body) {
  const int64_t taps = c.dilation_x == 1 ? c.kernel_width : 1, length = taps * c.channels;
  int64_t ox = first % c.out_width, oy = first / c.out_width % c.out_height, b = first / c.out_width / c.out_height;
  int64_t column = 0;
  for (int64_t row = 0; row < count; ++row) {
    const int64_t left = ox * c.stride_x - c.pad_x, top = oy * c.stride_y - c.pad_y;
    const bool in_one_run = taps == c.kernel_width && left >= 0 && left + taps <= c.width;
    for (int64_t ky = 0; ky < c.kernel_height; ++ky) {
      const int64_t y = top + ky * c.dilation_y, line = (b * c.height + y) * c.width;
      const bool inside = y >= 0 && y < c.height;
      if (inside && in_one_run) {  // nearly always, so it is worth a shorter path
        body(column, (line + left) * c.channels, length);
        column += length;
        continue;
      }
      for (int64_t kx = 0; kx < c.kernel_width; kx += taps, column += length) {
        const int64_t x = left + kx * c.dilation_x;
        const int64_t begin = inside ? std::clamp<int64_t>(-x, 0, taps) : taps;
        const int64_t end = std::clamp<int64_t>(c.width - x, begin, taps);
        if (begin > 0) body(column, -1, begin * c.channels);
        if (end > begin) body(column + begin * c.channels, (line + x + begin) * c.channels, (end - begin) * c.channels);
        if (taps > end) body(column + end * c.channels, -1, (taps - end) * c.channels);
      }
    }
    if (++ox == c.out_width) {
      ox = 0;
      if (++oy == c.out_height) oy = 0, ++b;
    }
  }
}

/// The rows [first, first + count) of the column matrix of x. Whole vectors are stored; the next run overwrites the
/// elements that they write after the end of a run.
template <class T> const T* gather(const Convolution& c, const T* x, int64_t first, int64_t count) {
  thread_local Scratch<T> memory;
  T* const columns = memory.at_least(count * row_length(c) + lanes<T>);
  const int64_t size = c.batch * c.height * c.width * c.channels;
  const int64_t ahead = 4 * c.width * c.channels;  // the prefetch distance, enough for x to arrive from memory in time
  for_each_run(c, first, count, [&](int64_t column, int64_t image, int64_t length) {
    T* const to = columns + column;
    const T* const from = x + image;
    if (image < 0)
      for (int64_t i = 0; i < length; i += lanes<T>) store(to + i, Vector<T>{});
    else if (image + length + lanes<T> <= size)
      for (int64_t i = 0; i < length; i += lanes<T>) {
        store(to + i, load(from + i));
        __builtin_prefetch(from + i + ahead);
      }
    else
      for (int64_t i = 0; i < length; i += lanes<T>) store(to + i, load_next(from + i, length - i));
  });
  return columns;
}

/// The adjoint of gather: adds the rows to dx in order, so that the bits do not depend on the tiles.
template <class T> void scatter(const Convolution& c, const T* columns, int64_t first, int64_t count, T* dx) {
  for_each_run(c, first, count, [&](int64_t column, int64_t image, int64_t length) {
    if (image < 0) return;
    const T* from = columns + column;
    T* to = dx + image;
    int64_t i = 0;
    for (; i + lanes<T> <= length; i += lanes<T>) store(to + i, load(to + i) + load(from + i));
    for (; i < length; ++i) to[i] += from[i];
  });
}

/// The caller's finish hook for a product that starts at row `first` of the whole.
template <class T> struct Shifted {
  const Epilogue<T>& whole;
  int64_t first;

  static void finish(void* context, T* values, int64_t row, int64_t column, int64_t count) {
    const auto& [whole, first] = *static_cast<const Shifted*>(context);
    whole.finish(whole.context, values, first + row, column, count);
  }
};

}  // namespace

template <class T> void forward(const Convolution& c, const T* x, const T* w, T* y, const Epilogue<T>& epilogue) {
  if (winograd::suits(c)) return winograd::forward(c, x, w, y, epilogue);
  thread_local PackedB<T> weights;
  const int64_t k = row_length(c), rows = row_count(c), height = rows_per_tile<T>(c);
  weights.pack(false, c.out_channels, k, w, c.out_channels);
  for (int64_t first = 0; first < rows; first += height) {
    const int64_t count = std::min(height, rows - first);
    Shifted<T> shifted{epilogue, first};
    Epilogue<T> here = epilogue;
    if (here.finish) here.finish = Shifted<T>::finish, here.context = &shifted;
    gemm(false, count, gather(c, x, first, count), k, weights, y + first * c.out_channels, c.out_channels, here);
  }
}

template <class T> void input_gradient(const Convolution& c, const T* g, const T* w, T* dx, const T* bias) {
  if (winograd::suits(c)) return winograd::input_gradient(c, g, w, dx, bias);
  thread_local PackedB<T> weights;
  thread_local Scratch<T> memory;
  const int64_t k = row_length(c), rows = row_count(c), height = rows_per_tile<T>(c);
  weights.pack(true, k, c.out_channels, w, c.out_channels);
  T* const columns = memory.at_least(height * k);
  // Images are initialised with the bias just before the first tile adds to them, so that they are still in cache.
  const int64_t image_rows = c.out_height * c.out_width, image_size = c.height * c.width * c.channels;
  int64_t started = 0;
  const auto start_until = [&](int64_t image) {
    T* const end = dx + image * image_size;
    T* to = dx + started * image_size;
    if (!bias)
      std::fill(to, end, T(0));
    else
      for (; to < end; to += c.channels) std::copy_n(bias, c.channels, to);
    started = image;
  };
  for (int64_t first = 0; first < rows; first += height) {
    const int64_t count = std::min(height, rows - first);
    gemm(false, count, g + first * c.out_channels, c.out_channels, weights, columns, k);
    start_until((first + count + image_rows - 1) / image_rows);
    scatter(c, columns, first, count, dx);
  }
  start_until(c.batch);  // for output without pixels
}

template <class T> void weight_gradient(const Convolution& c, const T* x, const T* g, T* dw) {
  if (winograd::suits(c)) return winograd::weight_gradient(c, x, g, dw);
  thread_local Scratch<T> memory;
  const int64_t k = row_length(c), rows = row_count(c), height = rows_per_tile<T>(c), n = c.out_channels;
  // The left factor is packed strip by strip and the right one once, beside the first strip. So the right one should be
  // the larger, if there are strips enough. Each element is the same sum either way.
  const bool turned = k > n && n >= 10 * tile_rows;
  T* const turned_dw = turned ? memory.at_least(k * n) : nullptr;
  Epilogue<T> epilogue;
  for (int64_t first = 0; first == 0 || first < rows; first += height) {
    const int64_t count = std::min(height, rows - first);
    const T* const columns = count > 0 ? gather(c, x, first, count) : nullptr;
    epilogue.accumulate = first > 0;
    if (turned)
      gemm(true, false, n, k, count, g + first * n, n, columns, k, turned_dw, k, epilogue);
    else
      gemm(true, false, k, n, count, columns, k, g + first * n, n, dw, n, epilogue);
  }
  for (int64_t i = 0; turned && i < k; ++i)
    for (int64_t j = 0; j < n; ++j) dw[i * n + j] = turned_dw[j * k + i];
}

template void forward(const Convolution&, const float*, const float*, float*, const Epilogue<float>&);
template void forward(const Convolution&, const double*, const double*, double*, const Epilogue<double>&);
template void input_gradient(const Convolution&, const float*, const float*, float*, const float*);
template void input_gradient(const Convolution&, const double*, const double*, double*, const double*);
template void weight_gradient(const Convolution&, const float*, const float*, float*);
template void weight_gradient(const Convolution&, const double*, const double*, double*);

}  // namespace weft::cpu
