// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "weft/engine/kernels/cpu/cpu_backend.h"
#include "weft/engine/kernels/cpu/widen.h"

namespace weft {
namespace cpu {
namespace {

// One axis of a permutation, with its strides in x and y.
struct Axis {
  int64_t extent, from, to;
};

// The axes of y. Axes that are adjacent in x, too, are merged into one.
int joined_axes(const Shape& x, const Shape& order, Axis* axes) {
  int rank = 0;
  for (const int64_t source : order) {
    const int s = static_cast<int>(source);
    const int64_t extent = x[s], stride = x.product(s + 1, x.rank());
    if (extent == 1) continue;
    if (rank > 0 && axes[rank - 1].from == extent * stride)
      axes[rank - 1] = {axes[rank - 1].extent * extent, stride, 0};
    else
      axes[rank++] = {extent, stride, 0};
  }
  for (int64_t i = rank, stride = 1; i-- > 0; stride *= axes[i].extent) axes[i].to = stride;
  return rank;
}

template <class T, class F> void for_each_place(const Axis* axes, int rank, const T* x, T* y, const F& body) {
  if (rank == 0) return body(x, y);
  for (int64_t i = 0; i < axes->extent; ++i)
    for_each_place(axes + 1, rank - 1, x + i * axes->from, y + i * axes->to, body);
}

// Tiles keep the cache lines of both sides in use. Inner tiles have constant extents, so their copy is unrolled.
template <class T> void transpose(const Axis& along_x, const Axis& along_y, const T* __restrict x, T* __restrict y) {
  constexpr int64_t tile = 8;
  for (int64_t i = 0; i < along_x.extent; i += tile)
    for (int64_t j = 0; j < along_y.extent; j += tile) {
      const T* from = x + i + j * along_y.from;
      T* to = y + i * along_x.to + j;
      const auto copy = [&](int64_t rows, int64_t columns) __attribute__((always_inline)) {
        for (int64_t p = 0; p < rows; ++p)
          for (int64_t q = 0; q < columns; ++q) to[p * along_x.to + q] = from[p + q * along_y.from];
      };
      const int64_t rows = along_x.extent - i, columns = along_y.extent - j;
      if (rows >= tile && columns >= tile)
        copy(tile, tile);
      else
        copy(std::min(rows, tile), std::min(columns, tile));
    }
}

template <class T> void permute(const Shape& shape, const Shape& order, const T* x, T* y) {
  Axis axes[Shape::max_rank + 1];
  int rank = joined_axes(shape, order, axes);
  if (rank == 0) axes[rank++] = {1, 1, 1};
  const Axis last = axes[--rank];
  if (last.from == 1) {
    for_each_place(axes, rank, x, y, [&](const T* from, T* to) { std::copy_n(from, last.extent, to); });
    return;
  }
  Axis* innermost = std::find_if(axes, axes + rank, [](const Axis& axis) { return axis.from == 1; });
  const Axis along_x = *innermost;
  std::copy(innermost + 1, axes + rank, innermost);
  for_each_place(axes, rank - 1, x, y, [&](const T* from, T* to) { transpose(along_x, last, from, to); });
}

// Calls body(offset in the windows, offset in the image or -1 outside, count) for all values of all windows in order,
// in runs that are contiguous on both sides.
template <class F> void for_each_run(const Convolution& c, const F& body) {
  int64_t tap = 0;
  for (int64_t b = 0; b < c.batch; ++b)
    for (int64_t oy = 0; oy < c.out_height; ++oy)
      for (int64_t ox = 0; ox < c.out_width; ++ox)
        for (int64_t ky = 0; ky < c.kernel_height; ++ky) {
          const int64_t y = oy * c.stride_y - c.pad_y + ky * c.dilation_y, left = ox * c.stride_x - c.pad_x;
          const auto inside = [&](int64_t kx) {
            const int64_t x = left + kx * c.dilation_x;
            return 0 <= y && y < c.height && 0 <= x && x < c.width;
          };
          for (int64_t kx = 0, run; kx < c.kernel_width; kx += run, tap += run) {
            run = 1;
            while (c.dilation_x == 1 && kx + run < c.kernel_width && inside(kx + run) == inside(kx)) ++run;
            const int64_t pixel = (b * c.height + y) * c.width + left + kx * c.dilation_x;
            body(tap * c.channels, inside(kx) ? pixel * c.channels : -1, run * c.channels);
          }
        }
}

}  // namespace
}  // namespace cpu

void CpuBackend::gather_rows(const Tensor& x, const Indices& indices, Tensor& y) {
  if (y.size() == 0) return;
  const int64_t row = y.size() / indices.size();
  const int64_t* index = indices.on_host();
  visit(x.dtype(), [&]<class T>() {
    const T* from = x.data<T>();
    T* to = y.mutate<T>();
    for (int64_t i = 0; i < indices.size(); ++i) to = std::copy_n(from + index[i] * row, row, to);
  });
}

void CpuBackend::scatter_add_rows(const Tensor& x, const Indices& indices, Tensor& y) {
  const int64_t* index = indices.on_host();
  visit_floating(x.dtype(), [&]<class T>() {
    using C = Compute<T>;
    const cpu::Output<T> output(y);
    C* to = output;
    std::fill_n(to, y.size(), C(0));
    if (x.size() == 0) return;
    const int64_t row = x.size() / indices.size();
    const T* from = x.data<T>();
    for (int64_t i = 0; i < indices.size(); ++i, from += row) {
      C* sum = to + index[i] * row;
      for (int64_t j = 0; j < row; ++j) sum[j] += C(from[j]);
    }
  });
}

void CpuBackend::one_hot(const Indices& indices, Tensor& y) {
  if (y.size() == 0) return;
  const int64_t classes = y.size() / indices.size();
  const int64_t* index = indices.on_host();
  visit(y.dtype(), [&]<class T>() {
    T* to = y.mutate<T>();
    std::fill_n(to, y.size(), T(0));
    for (int64_t i = 0; i < indices.size(); ++i) to[i * classes + index[i]] = T(1);
  });
}

void CpuBackend::copy_slab(const Tensor& x, Along from, int64_t from_begin, Tensor& y, Along to, int64_t to_begin,
                           int64_t count) {
  visit(x.dtype(), [&]<class T>() {
    const T* source = x.data<T>() + from_begin * from.inner;
    T* target = y.mutate<T>() + to_begin * to.inner;
    for (int64_t o = 0; o < from.outer; ++o)
      std::copy_n(source + o * from.extent * from.inner, count * from.inner, target + o * to.extent * to.inner);
  });
}

void CpuBackend::pad(const Tensor& x, Along along, int64_t before, double value, Tensor& y) {
  fill(value, y);
  if (x.size() == 0) return;
  const Along padded(along.outer, y.size() / (along.outer * along.inner), along.inner);
  copy_slab(x, along, 0, y, padded, before, along.extent);
}

void CpuBackend::permute(const Tensor& x, const Shape& order, Tensor& y) {
  if (x.size() == 0) return;
  visit(x.dtype(), [&]<class T>() { cpu::permute(x.shape(), order, x.data<T>(), y.mutate<T>()); });
}

void CpuBackend::unfold(const Convolution& c, const Tensor& x, Tensor& y) {
  visit_floating(x.dtype(), [&]<class T>() {
    const T* from = x.data<T>();
    T* to = y.mutate<T>();
    cpu::for_each_run(c, [&](int64_t window, int64_t image, int64_t count) {
      if (image < 0)
        std::fill_n(to + window, count, T(0));
      else
        std::copy_n(from + image, count, to + window);
    });
  });
}

void CpuBackend::fold(const Convolution& c, const Tensor& x, Tensor& y) {
  visit_floating(x.dtype(), [&]<class T>() {
    using C = Compute<T>;
    const T* from = x.data<T>();
    const cpu::Output<T> output(y);
    C* to = output;
    std::fill_n(to, y.size(), C(0));
    cpu::for_each_run(c, [&](int64_t window, int64_t image, int64_t count) {
      for (int64_t i = 0; image >= 0 && i < count; ++i) to[image + i] += C(from[window + i]);
    });
  });
}

}  // namespace weft
