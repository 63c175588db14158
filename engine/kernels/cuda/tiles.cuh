// SPDX-License-Identifier: Apache-2.0
#pragma once
// Tiles of a matrix that is never in memory as a whole.
#include <algorithm>
#include <cmath>

#include "weft/engine/kernels/cuda/launch.cuh"

namespace weft::cuda {

struct Tile {
  int64_t row, column, rows, columns;
  bool last;  // of its rows

  __device__ int64_t inside(int64_t of_all) const {  // the number of a column in this tile; -1 if it is in another one
    const int64_t own = of_all - column;
    return own >= 0 && own < columns ? own : -1;
  }
};

// Tiles are nearly square, since what belongs to their rows and columns is read for each of them; but if the matrix has
// a short side, the other one of a tile is long. They begin at multiples of what cuBLAS multiplies at a time.
class Tiling {
 public:
  Tiling(int64_t m, int64_t n, int64_t most_values) : m_(m), n_(n) {
    const int64_t side = std::max(static_cast<int64_t>(std::sqrt(most_values)), unit);
    rows = part_of(m, most_values / std::min(n, side));
    columns = part_of(n, most_values / rows);
  }
  int64_t rows, columns;  // of the largest tile

  template <class Visit> void for_each(const Visit& visit) const {
    for (int64_t row = 0; row < m_; row += rows)
      for (int64_t column = 0; column < n_; column += columns)
        visit(Tile{row, column, std::min(rows, m_ - row), std::min(columns, n_ - column), column + columns >= n_});
  }

 private:
  static constexpr int64_t unit = 128;
  // As equal parts as units allow.
  static int64_t part_of(int64_t extent, int64_t most) {
    if (extent <= most) return extent;
    const int64_t parts = ceil_divide(extent, std::max(most / unit, int64_t{1}) * unit);
    return ceil_divide(ceil_divide(extent, parts), unit) * unit;
  }
  const int64_t m_, n_;
};

}  // namespace weft::cuda
