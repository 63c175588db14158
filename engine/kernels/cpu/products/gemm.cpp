// SPDX-License-Identifier: Apache-2.0
#include "weft/engine/kernels/cpu/products/gemm.h"

#include <algorithm>
#include <bit>

#include "weft/engine/kernels/cpu/products/gemm_tile.h"

namespace weft::cpu {
namespace {

// A panel of b (block_k x the columns of a tile) stays in L1 while it is multiplied with a group of strips of a (the
// rows of a tile x block_k each). The group, its rows of c and the block of b (block_k x block_n) stay in L2. The
// finish hook gets rows of at most `longest_piece` elements, so that they are still in cache.
template <class T> constexpr int64_t largest_block = 768 * 1024 / int64_t(sizeof(T));
template <class T> constexpr int64_t longest_piece = 4096 / int64_t(sizeof(T));

constexpr int64_t bytes_together = 128 * 1024, most_together = 32;  // strips of a group, of a and of c

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
constexpr int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

/// The length of nearly equal pieces of `total`, a multiple of `unit`.
constexpr int64_t piece(int64_t total, int64_t largest, int64_t unit = 1) {
  return total == 0 ? unit : round_up(ceil_div(total, ceil_div(total, largest)), unit);
}

/// A matrix to read, in place or packed. Element (i, j) is data[i * stride + j], or data[j * stride + i] if transposed.
template <class T> struct View {
  const T* data;
  int64_t stride;
  bool transposed;

  View at(int64_t i, int64_t j) const {
    if (!data) return *this;  // an operand without elements may be without memory
    return {data + (transposed ? j * stride + i : i * stride + j), stride, transposed};
  }
};

/// to[j * step + i] = from[i * stride + j] for a full square of lanes x lanes, by log2(lanes) perfect shuffles of the
/// rows.
template <class T> void transpose_square(const T* from, int64_t stride, T* to, int64_t step) {
  Vector<T> v[lanes<T>], w[lanes<T>];
  unroll<lanes<T>>([&](auto i) __attribute__((always_inline)) { v[i] = load(from + i * stride); });
  unroll<std::countr_zero(unsigned(lanes<T>))>([&](auto) __attribute__((always_inline)) {
    unroll<lanes<T> / 2>([&](auto i) __attribute__((always_inline)) {
      w[2 * i] = interleave_low<T>(v[i], v[i + lanes<T> / 2]);
      w[2 * i + 1] = interleave_high<T>(v[i], v[i + lanes<T> / 2]);
    });
    unroll<lanes<T>>([&](auto i) __attribute__((always_inline)) { v[i] = w[i]; });
  });
  unroll<lanes<T>>([&](auto i) __attribute__((always_inline)) { store(to + i * step, v[i]); });
}

/// Packs one panel of k rows of `width` elements. The first `n` are copied and the others are zeros.
template <class T> void pack_panel(const View<T>& b, int64_t n, int64_t k, int64_t width, T* to) {
  constexpr int64_t square = lanes<T>;
  if (!b.transposed) {
    for (int64_t p = 0; p < k; ++p)
      for (int64_t j = 0; j < width; j += square)
        store(to + p * width + j, load_next(b.data + p * b.stride + j, n - j));
    return;
  }
  const int64_t squares_n = n / square * square, squares_k = k / square * square;
  for (int64_t j = 0; j < squares_n; j += square)
    for (int64_t p = 0; p < squares_k; p += square)
      transpose_square(b.at(p, j).data, b.stride, to + p * width + j, width);
  for (int64_t p = 0; p < k; ++p)
    for (int64_t j = p < squares_k ? squares_n : 0; j < width; ++j)
      to[p * width + j] = j < n ? b.data[j * b.stride + p] : T(0);
}

/// The width in vectors of the next panel, when `columns` are left: 64 columns are 32 + 32 rather than 48 + 16.
template <class T> constexpr int64_t panel_vectors(int64_t columns) {
  const int64_t vectors = ceil_div(columns, lanes<T>);
  return vectors == tile_vectors + 1 ? tile_vectors - 1 : std::min<int64_t>(vectors, tile_vectors);
}

/// The most rows of a strip of a: as many as the tiles of all panels have.
template <class T> constexpr int64_t strip_rows(int64_t n) {
  const int64_t first = panel_vectors<T>(n);
  return rows_of_tile(std::max(first, panel_vectors<T>(n - first * lanes<T>)));
}

template <class T> void pack_panels(const View<T>& b, int64_t n, int64_t k, T* to) {
  for (int64_t j = 0; j < n;) {
    const int64_t width = panel_vectors<T>(n - j) * lanes<T>;
    pack_panel(b.at(0, j), std::min(n - j, width), k, width, to + j * k);
    j += width;
  }
}

// The stride of a strip that is packed by row. Packed by column, it has whole vectors.
template <class T> constexpr int64_t strip_stride = largest_block_k + lanes<T>;
template <class T>
constexpr int64_t strip_size = std::max(most_tile_rows* strip_stride<T>,
                                        largest_block_k* round_up(most_tile_rows, lanes<T>));

/// Copies rows x k of `a`. If more of it is readable, whole vectors are copied, which is cheaper than an exact
/// remainder.
template <class T>
View<T> pack_strip(const View<T>& a, int64_t rows, int64_t k, int64_t readable_rows, int64_t readable_k, T* to) {
  const int64_t stride = a.transposed ? round_up(rows, lanes<T>) : strip_stride<T>;
  const int64_t outer = a.transposed ? k : rows, inner = a.transposed ? rows : k;
  const int64_t readable = a.transposed ? readable_rows : readable_k;
  const T* from = a.data;
  T* row = to;
  const T* const end = to + outer * stride;
  if (inner <= lanes<T> && lanes<T> <= readable)  // nearly always, so it is worth a shorter path
    for (; row < end; row += stride, from += a.stride) store(row, load(from));
  else if (round_up(inner, lanes<T>) <= readable)
    for (; row < end; row += stride, from += a.stride)
      for (int64_t j = 0; j < inner; j += lanes<T>) store(row + j, load(from + j));
  else
    for (; row < end; row += stride, from += a.stride) std::copy_n(from, inner, row);
  return {to, stride, a.transposed};
}

/// A block of op(b), as consecutive panels or in place. If it has a `copy`, the strip that is multiplied with it also
/// writes its panels there, for the other strips. This takes hardly any time beside the products.
template <class T> struct Block {
  const T* data;
  int64_t ldb;
  bool packed;
  T* copy = nullptr;
};

/// Computes a tile in a buffer and copies it to c: at the right edge, where a whole vector does not fit, and if there
/// is a factor.
template <class T>
void multiply_aside(Tile<T> tile, int64_t rows, int64_t columns, int64_t k, const View<T>& a, const T* b, int64_t ldb,
                    const T* next, T* copy, T alpha, const TileOutput<T>& out) {
  constexpr int64_t width = tile_columns<T>;
  alignas(vector_bytes) T sums[most_tile_rows * width];
  tile(k, a.data, a.stride, b, ldb, next, copy, {sums, width, nullptr, false});
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; j += lanes<T>) {
      T* c = out.c + i * out.ldc + j;
      Vector<T> start = out.bias ? load_next(out.bias + j, columns - j) : Vector<T>{};
      if (out.add) start += load_next(c, columns - j);
      store_next(c, fused_multiply_add(broadcast(alpha), load(sums + i * width + j), start), columns - j);
    }
}

/// Rows of a and of c that are multiplied together.
template <class T> struct Strip {
  View<T> a;
  int64_t rows;
  TileOutput<T> out;
  const T* next;  // to prefetch
};

/// Multiplies a group of strips with a block of b.
template <class T>
void multiply_strips(Strip<T>* strips, int64_t count, int64_t columns, int64_t k, const Block<T>& b, T alpha) {
  const T* panel = b.data;
  T* copy = b.copy;
  for (int64_t column = 0; column < columns;) {
    const int64_t vectors = panel_vectors<T>(columns - column), width = vectors * lanes<T>;
    const T* data = panel;
    int64_t ldb = b.packed ? width : b.ldb;
    T* copy_to = copy;
    for (int64_t s = 0; s < count; ++s) {
      auto& [a, rows, out, next] = strips[s];
      const auto width_index = std::size_t(vectors - 1);
      const Tile<T> tile = copy_to ? copying_tiles<T>[a.transposed][width_index][std::size_t(tile_rows - rows)]
                                   : tiles<T>[a.transposed][width_index][std::size_t(rows - 1)];
      if (alpha == 1 && column + width <= columns)
        tile(k, a.data, a.stride, data, ldb, next, copy_to, out);
      else
        multiply_aside(tile, rows, std::min(width, columns - column), k, a, data, ldb, next, copy_to, alpha, out);
      out.advance(width);
      next = strips[(s + 1) % count].a.data;  // for the next panel
      if (copy_to) data = copy_to, ldb = width, copy_to = nullptr;
    }
    panel += b.packed ? width * k : width;
    if (copy) copy += width * k;
    column += width;
  }
}

/// `packed` is all of op(b) in PackedB's layout, or null. The blocks of k determine the order of summation, so their
/// length must not depend on m or n.
template <class T>
void multiply(const View<T>& a, const View<T>& b, const T* packed, int64_t m, int64_t n, int64_t k, int64_t block_k,
              T* c, int64_t ldc, const Epilogue<T>& epilogue) {
  thread_local Scratch<T> strip_memory, block_memory;
  if (m == 0 || n == 0) return;
  const int64_t strips = ceil_div(m, strip_rows<T>(n));
  const int64_t block_n = piece(n, std::min(longest_piece<T>, largest_block<T> / block_k), tile_columns<T>);
  const bool readable_in_place = !packed && !b.transposed && n % lanes<T> == 0;
  const bool stays_in_place = readable_in_place && (strips <= 2 || b.stride <= 2 * tile_columns<T>);
  // Then no strip has less than tile_rows - 1 rows.
  const bool first_strip_copies = readable_in_place && strip_rows<T>(n) == tile_rows && m / strips >= tile_rows - 1;
  const bool copy_strips = a.transposed ? n > 2 * tile_columns<T> : k > largest_block_k && n > 2 * tile_columns<T>;
  const int64_t bytes_of_strip = strip_rows<T>(n) * (block_k + std::min(block_n, n)) * int64_t(sizeof(T));
  const int64_t group = std::min(strips, std::clamp<int64_t>(bytes_together / bytes_of_strip, 1, most_together));
  T* const strip = strip_memory.at_least(group * strip_size<T>);

  for (int64_t column = 0; column < n; column += block_n) {
    const int64_t columns = std::min(block_n, n - column);
    for (int64_t p = 0; p == 0 || p < k; p += block_k) {
      const int64_t depth = std::min(block_k, k - p);
      const bool first = p == 0, last = p + block_k >= k;
      Block<T> right{};
      if (packed) {
        right = {packed + p * round_up(n, lanes<T>) + column * depth, 0, true};
      } else if (stays_in_place) {
        right = {b.at(p, column).data, b.stride, false};
      } else {
        T* const panels = block_memory.at_least(depth * round_up(columns, lanes<T>));
        if (!first_strip_copies) pack_panels(b.at(p, column), columns, depth, panels);
        right =
            first_strip_copies ? Block<T>{b.at(p, column).data, b.stride, false, panels} : Block<T>{panels, 0, true};
      }
      for (int64_t begin = 0; begin < strips; begin += group) {
        const int64_t end = std::min(begin + group, strips), past = m * end / strips;
        Strip<T> together[most_together];
        for (int64_t s = begin; s < end; ++s) {
          const int64_t row = m * s / strips, rows = m * (s + 1) / strips - row;
          const T* bias = first && epilogue.bias ? epilogue.bias + column : nullptr;
          const View<T> left = a.at(row, p);
          T* const to = strip + (s - begin) * strip_size<T>;
          // The address to prefetch: the next strip of a, or a part of the next block. It may be past the end of a.
          const T* next = copy_strips     ? to
                          : !a.transposed ? a.at(row + rows, p).data
                          : last          ? left.data
                                          : a.at(0, p + depth).data + s * depth * lanes<T>;
          together[s - begin] = {copy_strips ? pack_strip(left, rows, depth, m - row, k - p, to) : left, rows,
                                 TileOutput<T>{c + row * ldc + column, ldc, bias, !first || epilogue.accumulate}, next};
        }
        multiply_strips(together, end - begin, columns, depth, right, epilogue.alpha);
        if (right.copy) right = {right.copy, 0, true};
        if (last && epilogue.finish)
          for (int64_t row = m * begin / strips; row < past; ++row)
            epilogue.finish(epilogue.context, c + row * ldc + column, row, column, columns);
      }
    }
  }
}

}  // namespace

template <class T>
void gemm(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k, const T* a, int64_t lda, const T* b,
          int64_t ldb, T* c, int64_t ldc, const Epilogue<T>& epilogue) {
  multiply<T>({a, lda, transpose_a}, {b, ldb, transpose_b}, nullptr, m, n, k, piece(k, largest_block_k), c, ldc,
              epilogue);
}

template <class T>
void PackedB<T>::pack(bool transpose_b, int64_t n, int64_t k, const T* b, int64_t ldb, int64_t longest_block) {
  n_ = n;
  k_ = k;
  block_k_ = piece(k, longest_block);
  const int64_t padded_n = round_up(n, lanes<T>);
  T* to = panels_.at_least(std::max<int64_t>(padded_n * k, 1));
  const View<T> whole{b, ldb, transpose_b};
  for (int64_t p = 0; p < k; p += block_k_)
    pack_panels(whole.at(p, 0), n, std::min(block_k_, k - p), to + p * padded_n);
}

template <class T>
void gemm(bool transpose_a, int64_t m, const T* a, int64_t lda, const PackedB<T>& b, T* c, int64_t ldc,
          const Epilogue<T>& epilogue) {
  multiply<T>({a, lda, transpose_a}, {}, b.data(), m, b.n(), b.k(), b.block_k(), c, ldc, epilogue);
}

template class PackedB<float>;
template class PackedB<double>;
template void gemm(bool, bool, int64_t, int64_t, int64_t, const float*, int64_t, const float*, int64_t, float*, int64_t,
                   const Epilogue<float>&);
template void gemm(bool, bool, int64_t, int64_t, int64_t, const double*, int64_t, const double*, int64_t, double*,
                   int64_t, const Epilogue<double>&);
template void gemm(bool, int64_t, const float*, int64_t, const PackedB<float>&, float*, int64_t,
                   const Epilogue<float>&);
template void gemm(bool, int64_t, const double*, int64_t, const PackedB<double>&, double*, int64_t,
                   const Epilogue<double>&);

}  // namespace weft::cpu
