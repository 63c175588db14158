// SPDX-License-Identifier: Apache-2.0
// Verbs that move values or compare their bits, and random numbers. Positions are computed per word; see words.cuh.
#include "weft/engine/kernels/cuda/checked_indices.cuh"
#include "weft/engine/kernels/cuda/cuda_backend.h"
#include "weft/engine/kernels/cuda/words.cuh"

namespace weft {
namespace cuda {
namespace {

// to[r][w] = from[row(r)][w]: rows are `length` words, `from_stride` and `to_stride` apart.
template <class Word> struct CopyRows {
  const Word* from;
  Word* to;
  int64_t length, from_stride, to_stride;
  CheckedIndices rows;  // undefined: row(r) = r
  __device__ void operator()(int64_t i) const {
    const auto [r, w] = split(i, length);
    const int64_t row = rows.defined() ? rows[r] : r;
    if (row >= 0) to[r * to_stride + w] = from[row * from_stride + w];
  }
};
// All members are in bytes.
struct RowCopy {
  const void* from;
  void* to;
  int64_t rows, length, from_stride, to_stride;
  void run(const CheckedIndices& indices) const {
    Grain().with(from).with(to).with(length).with(from_stride).with(to_stride).visit([this, &indices]<class Word>() {
      const int64_t words = in_words<Word>(length);
      for_each(rows * words, CopyRows<Word>{in_words<Word>(from), in_words<Word>(to), words,
                                            in_words<Word>(from_stride), in_words<Word>(to_stride), indices});
    });
  }
};

// y[o][e][j] = x[o][j], or x[o][extent - 1 - e][j].
template <class Word> struct Repeat {
  const Word* x;
  int64_t extent, inner;
  Word* y;
  __device__ void operator()(int64_t i) const {
    const auto [line, j] = split(i, inner);
    y[i] = x[split(line, extent).quotient * inner + j];
  }
};
template <class Word> struct Flip {
  const Word* x;
  int64_t extent, inner;
  Word* y;
  __device__ void operator()(int64_t i) const {
    const auto [line, j] = split(i, inner);
    const auto [o, e] = split(line, extent);
    y[i] = x[(o * extent + extent - 1 - e) * inner + j];
  }
};
// y[o][e][j] = x[o][e - before][j], or the value where x has no such element. Lengths are of a whole o.
template <class Word> struct Pad {
  const Word* x;
  int64_t before, length, padded_length;
  Word value;
  Word* y;
  __device__ void operator()(int64_t i) const {
    const auto [o, w] = split(i, padded_length);
    const int64_t from = w - before;
    y[i] = from >= 0 && from < length ? x[o * length + from] : value;
  }
};
// Several blocks may find a difference. Volatile stores to one place are no race.
template <class Word> struct MarkDifference {
  const Word *a, *b;
  volatile uint8_t* y;
  __device__ void operator()(int64_t i) const {
    const Word left = a[i], right = b[i];
    if (!(left == right)) *y = 1;
  }
};

template <template <class> class Kernel> void move_along(const Tensor& x, Along along, Tensor& y) {
  const void* from = x.data();
  void* to = y.mutate();
  const int64_t inner = along.inner * static_cast<int64_t>(size_of(x.dtype()));
  const int64_t bytes = along.outer * along.extent * inner;
  Grain().with(from).with(to).with(inner).visit([&]<class Word>() {
    for_each(in_words<Word>(bytes),
             Kernel<Word>{in_words<Word>(from), along.extent, in_words<Word>(inner), in_words<Word>(to)});
  });
}

struct Read {
  CheckedIndices indices;
  __device__ void operator()(int64_t i) const { indices[i]; }
};

template <class T> struct OneHot {
  CheckedIndices indices;
  int64_t classes;
  T* y;
  __device__ void operator()(int64_t i) const {
    const auto [row, j] = split(i, classes);
    y[i] = static_cast<T>(static_cast<Compute<T>>(indices[row] == j));
  }
};

// The axes of y and their strides in x. Axes that are adjacent in x and in y are merged into one.
struct Axes {
  int rank = 0;
  int64_t extents[Shape::max_rank], strides[Shape::max_rank];

  Axes(const Shape& x, const Shape& order) {
    for (const int64_t source : order) {
      const int s = static_cast<int>(source);
      const int64_t extent = x[s], stride = x.product(s + 1, x.rank());
      if (extent == 1) continue;
      if (rank > 0 && strides[rank - 1] == extent * stride) {
        extents[rank - 1] *= extent;
        strides[rank - 1] = stride;
      } else {
        extents[rank] = extent;
        strides[rank++] = stride;
      }
    }
    if (rank == 0) extents[0] = strides[rank++] = 1;
  }
};
template <class Word> struct Permute {
  const Word* x;
  Axes axes;
  Word* y;
  __device__ void operator()(int64_t i) const {
    int64_t rest = i, from = 0;
#pragma unroll  // so that the axes stay in registers
    for (int a = Shape::max_rank - 1; a > 0; --a) {
      if (a >= axes.rank) continue;
      const auto [quotient, place] = split(rest, axes.extents[a]);
      from += place * axes.strides[a];
      rest = quotient;
    }
    y[i] = x[from + rest * axes.strides[0]];
  }
};

// Transposes matrices through tiles, so that both reads and writes are coalesced.
constexpr int tile = 32;
template <class Word>
__global__ void __launch_bounds__(block_threads)
    transpose_kernel(int64_t tiles, int64_t rows, int64_t columns, const Word* x, Word* y) {
  __shared__ Word values[tile][tile + 1];
  const int j = static_cast<int>(threadIdx.x) % tile, i = static_cast<int>(threadIdx.x) / tile;
  const int64_t across = ceil_divide(columns, tile), down = ceil_divide(rows, tile);
  for (int64_t t = blockIdx.x; t < tiles; t += gridDim.x) {
    const auto [strip, tile_column] = split(t, across);
    const auto [matrix, tile_row] = split(strip, down);
    const int64_t first = matrix * rows * columns, top = tile_row * tile, left = tile_column * tile;
    for (int r = i; r < tile; r += block_threads / tile)
      if (top + r < rows && left + j < columns) values[r][j] = x[first + (top + r) * columns + left + j];
    __syncthreads();
    for (int c = i; c < tile; c += block_threads / tile)
      if (left + c < columns && top + j < rows) y[first + (left + c) * rows + top + j] = values[j][c];
    __syncthreads();
  }
}

template <class Word> void permute(const Word* x, const Axes& axes, int64_t size, Word* y) {
  const int last = axes.rank - 1;
  const int64_t rows = axes.extents[last], columns = axes.strides[last];
  const bool one_matrix = last == 1 && axes.extents[0] == columns && axes.strides[0] == 1;
  const bool matrices =
      last == 2 && axes.extents[1] == columns && axes.strides[1] == 1 && axes.strides[0] == rows * columns;
  if (!one_matrix && !matrices) return for_each(size, Permute<Word>{x, axes, y});
  const int64_t tiles = (matrices ? axes.extents[0] : 1) * ceil_divide(rows, tile) * ceil_divide(columns, tile);
  launch(transpose_kernel<Word>, tiles, tiles, rows, columns, x, y);
}

template <class T> struct Draw {
  Random random;
  Compute<T> shift, scale;
  T* y;
};
template <class T> struct UniformDraw : Draw<T> {
  __device__ void operator()(int64_t i) const {
    this->y[i] = T(this->shift + this->scale * uniform_draw<Compute<T>>(this->random, static_cast<uint64_t>(i)));
  }
};
template <class T> struct NormalDraw : Draw<T> {
  __device__ void operator()(int64_t i) const {
    this->y[i] = T(this->shift + this->scale * normal_draw<Compute<T>>(this->random, static_cast<uint64_t>(i)));
  }
};
template <template <class> class Kernel> void draw(Random random, double shift, double scale, Tensor& y) {
  visit_floating(y.dtype(), [&]<class T>() {
    using C = Compute<T>;
    for_each(y.size(), Kernel<T>{{random, static_cast<C>(shift), static_cast<C>(scale), y.mutate<T>()}});
  });
}

}  // namespace
}  // namespace cuda

void CudaBackend::mark_difference(const Tensor& a, const Tensor& b, Tensor& y) {
  const void *const left = a.data(), *const right = b.data();
  const auto bytes = static_cast<int64_t>(a.bytes());
  cuda::Grain().with(left).with(right).with(bytes).visit([&]<class Word>() {
    using cuda::in_words;
    cuda::for_each(in_words<Word>(bytes),
                   cuda::MarkDifference<Word>{in_words<Word>(left), in_words<Word>(right), y.mutate<uint8_t>()});
  });
}

void CudaBackend::repeat(const Tensor& x, Along along, Tensor& y) { cuda::move_along<cuda::Repeat>(x, along, y); }
void CudaBackend::flip(const Tensor& x, Along along, Tensor& y) { cuda::move_along<cuda::Flip>(x, along, y); }

void CudaBackend::check_indices(const Indices& indices) {
  cuda::for_each(indices.size(), cuda::Read{cuda::CheckedIndices(indices)});
}

void CudaBackend::gather_rows(const Tensor& x, const Indices& indices, Tensor& y) {
  if (y.size() == 0) return check_indices(indices);
  const int64_t count = indices.size(), length = static_cast<int64_t>(y.bytes()) / count;
  cuda::RowCopy{x.data(), y.mutate(), count, length, length, length}.run(cuda::CheckedIndices(indices));
}

void CudaBackend::one_hot(const Indices& indices, Tensor& y) {
  if (y.size() == 0) return check_indices(indices);
  visit(y.dtype(), [&]<class T>() {
    cuda::for_each(y.size(), cuda::OneHot<T>{cuda::CheckedIndices(indices), y.size() / indices.size(), y.mutate<T>()});
  });
}

void CudaBackend::copy_slab(const Tensor& x, Along from, int64_t from_begin, Tensor& y, Along to, int64_t to_begin,
                            int64_t count) {
  if (from.outer * from.inner * count == 0) return;
  const int64_t slice = from.inner * static_cast<int64_t>(size_of(x.dtype()));
  const char* const source = x.data<char>() + from_begin * slice;
  char* const target = y.mutate<char>() + to_begin * slice;
  cuda::RowCopy{source, target, from.outer, count * slice, from.extent * slice, to.extent * slice}.run({});
}

void CudaBackend::pad(const Tensor& x, Along along, int64_t before, double value, Tensor& y) {
  if (y.size() == 0) return;
  const auto size = static_cast<int64_t>(size_of(x.dtype())), bytes = static_cast<int64_t>(y.bytes());
  const int64_t slice = along.inner * size, length = along.extent * slice, padded = bytes / along.outer;
  const Tensor values = Tensor::full({int64_t{sizeof(cuda::Quad)} / size}, value, x.dtype());
  const void* const from = x.data();
  void* const to = y.mutate();
  cuda::Grain().with(from).with(to).with(before * slice).with(length).with(padded).visit([&]<class Word>() {
    using cuda::in_words;
    cuda::for_each(in_words<Word>(bytes),
                   cuda::Pad<Word>{in_words<Word>(from), in_words<Word>(before * slice), in_words<Word>(length),
                                   in_words<Word>(padded), *values.data<Word>(), in_words<Word>(to)});
  });
}

void CudaBackend::permute(const Tensor& x, const Shape& order, Tensor& y) {
  if (x.size() == 0) return;
  cuda::Axes axes(x.shape(), order);
  const int64_t size = static_cast<int64_t>(size_of(x.dtype()));
  const void* const from = x.data();
  void* const to = y.mutate();
  cuda::Grain grain;
  grain.with(from).with(to).with(size);
  const int last = axes.rank - 1;
  if (axes.strides[last] == 1) {  // runs are contiguous on both sides, so they are copied in words
    axes.extents[last] *= size;
    grain = cuda::Grain().with(from).with(to).with(axes.extents[last]);
    for (int a = 0; a < last; ++a) grain.with(axes.strides[a] *= size);
  }
  const bool runs = axes.strides[last] == 1;
  grain.visit([&]<class Word>() {
    if (runs) {
      axes.extents[last] = cuda::in_words<Word>(axes.extents[last]);
      for (int a = 0; a < last; ++a) axes.strides[a] = cuda::in_words<Word>(axes.strides[a]);
    }
    const int64_t words = cuda::in_words<Word>(static_cast<int64_t>(x.bytes()));
    cuda::permute(cuda::in_words<Word>(from), axes, words, cuda::in_words<Word>(to));
  });
}

void CudaBackend::uniform(Random random, double low, double high, Tensor& y) {
  cuda::draw<cuda::UniformDraw>(random, low, high - low, y);
}
void CudaBackend::normal(Random random, double mean, double deviation, Tensor& y) {
  cuda::draw<cuda::NormalDraw>(random, mean, deviation, y);
}

}  // namespace weft
