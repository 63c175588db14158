// SPDX-License-Identifier: Apache-2.0
#pragma once
// The loop over tiles of scores, for their sums and for their gradients.
#include <algorithm>
#include <limits>

#include "weft/engine/kernels/cpu/products/gemm.h"
#include "weft/engine/kernels/cpu/row_fold.h"
#include "weft/engine/kernels/cpu/scores/score_kernels.h"
#include "weft/engine/kernels/cpu/widen.h"
#include "weft/engine/maths/maths.h"

namespace weft::cpu {

// The scores of a tile, its part of k in the layouts of two products, and its gradient fit into 1 MB.
constexpr int64_t tile_height = 126;  // whole strips of gemm
constexpr int64_t widest_tile = 384;
template <class T> int64_t tile_width(int64_t d) {
  constexpr int64_t values = 192 * 1024 / int64_t(sizeof(T)), unit = 48;
  return std::clamp(values / std::max<int64_t>(d, 1) / unit * unit, 2 * unit, widest_tile);
}

template <class T> struct ScoreTile {
  int64_t row, rows, column, columns;
  T* values;
  int64_t stride;

  T* at(int64_t i) const { return values + i * stride; }
};

template <class T> T sum(int64_t n, const T* x) {
  return folded_sum<T>(0, n, [x](auto at) { return at(x); });
}
template <class T> T dot(int64_t n, const T* x, const T* y) {
  return folded_sum<T>(0, n, [x, y](auto at) { return at(x) * at(y); });
}

/// The index of a column within the columns [of, of + count) of a tile, or -1.
inline int64_t place(int64_t of, int64_t column, int64_t count) {
  return of >= column && of < column + count ? of - column : -1;
}

/// The score of row i of a tile with its target, if that is one of the tile's columns.
template <class T> T* target_in(const ScoreTile<T>& t, const ScoreMatrix<T>& s, int64_t i) {
  const int64_t j = s.targets ? place(s.targets[t.row + i], t.column, t.columns) : -1;
  return j >= 0 ? t.at(i) + j : nullptr;
}

/// Turns the products of a row into scores.
template <class T> void finish_row(const ScoreMatrix<T>& s, int64_t row, int64_t column, int64_t count, T* z) {
  for (int64_t j = 0; j < count; ++j) z[j] = fused_multiply_add(s.scale, z[j], s.shift);
  for (int64_t e = 0; e < s.excluded_count; ++e)
    if (const int64_t j = place(s.excluded[row * s.excluded_count + e], column, count); j >= 0)
      z[j] = -std::numeric_limits<T>::infinity();
}

/// For each block of columns, calls pass.begin(column, columns), pass.visit(tile) for its tiles from the top down, and
/// pass.end(column, columns).
template <class T, class Pass> void for_each_tile(const ScoreMatrix<T>& s, Pass&& pass) {
  thread_local PackedB<T> keys;
  const int64_t width = tile_width<T>(s.d), stride = width + lanes<T>;  // no power of two
  const Temporary<T> values(tile_height * stride);
  for (int64_t column = 0; column < s.n; column += width) {
    const int64_t columns = std::min(width, s.n - column);
    keys.pack(true, columns, s.d, s.k + column * s.d, s.d);
    pass.begin(column, columns);
    for (int64_t row = 0; row < s.m; row += tile_height) {
      const int64_t rows = std::min(tile_height, s.m - row);
      gemm<T>(false, rows, s.q + row * s.d, s.d, keys, values, stride);
      for (int64_t i = 0; i < rows; ++i) finish_row<T>(s, row + i, column, columns, values + i * stride);
      pass.visit(ScoreTile<T>{row, rows, column, columns, values, stride});
    }
    pass.end(column, columns);
  }
}

template <class T> T longest_row(int64_t rows, int64_t d, const T* x) {
  T most = 0;
  for (int64_t i = 0; i < rows; ++i) most = std::max(most, dot(d, x + i * d, x + i * d));
  return maths::sqrt(most);
}

/// Whether neither e^z nor its sums can overflow or underflow. Then one e^z serves both its row and its column.
template <class T> bool surely_small(const ScoreMatrix<T>& s) {
  constexpr T limit = 40;
  return maths::abs(s.scale) * longest_row(s.m, s.d, s.q) * longest_row(s.n, s.d, s.k) + maths::abs(s.shift) <= limit;
}

}  // namespace weft::cpu
