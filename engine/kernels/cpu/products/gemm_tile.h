// SPDX-License-Identifier: Apache-2.0
#pragma once
// The register tile of gemm, which does all the arithmetic of a matrix product.

#include <algorithm>
#include <array>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "weft/engine/kernels/cpu/simd.h"

namespace weft::cpu {

// A tile fills all registers but those for one row of b and one broadcast element of a. With 32 registers, a width of
// three vectors needs the fewest loads per FMA, and nine rows of c do not compete for one set of the cache, as 14 do if
// ldc is a power of two. With 16 registers, six rows of two vectors leave one register free; four rows of three would
// not. A narrow product has taller tiles, so that each read of b serves more rows.
constexpr int tile_vectors = vector_registers == 32 ? 3 : 2;
constexpr int rows_of_tile(int64_t vectors) {
  return static_cast<int>(std::min<int64_t>((vector_registers - 1 - vectors) / vectors, 14));
}
constexpr int tile_rows = rows_of_tile(tile_vectors), most_tile_rows = rows_of_tile(1);
template <class T> constexpr int tile_columns = tile_vectors* lanes<T>;

/// The output of a tile: c = sum + bias, or c += sum + bias.
template <class T> struct TileOutput {
  T* c;
  int64_t ldc;
  const T* bias;  // may be null
  bool add;

  void advance(int64_t columns) {
    c += columns;
    if (bias) bias += columns;
  }
};

/// One tile: rows x (vectors * lanes) sums over k. Element (i, p) of a is a[i * lda + p] if `by_row`, else a[p * lda +
/// i]. Every step also prefetches a cache line, from `next` on, or if it `copies`, stores its row of b to `copy`.
template <class T, int rows, int vectors, bool by_row, bool copies>
void multiply_tile(int64_t k, const T* a, int64_t lda, const T* b, int64_t ldb, const T* next, T* copy,
                   TileOutput<T> out) {
  Vector<T> sum[rows][vectors] = {};
  const auto step = [&]() __attribute__((always_inline)) {
    Vector<T> right[vectors];
    unroll<vectors>([&](auto j)
                        __attribute__((always_inline)) { right[j] = kept_in_register(load(b + j * lanes<T>)); });
    unroll<rows>([&](auto i) __attribute__((always_inline)) {
      const Vector<T> left = broadcast(by_row ? a[i * lda] : a[i]);
      unroll<vectors>([&](auto j) __attribute__((always_inline)) {
        sum[i][j] = fused_multiply_add(left, right[j], sum[i][j]);
      });
    });
    if constexpr (copies) {
      unroll<vectors>([&](auto j) __attribute__((always_inline)) {
        store(copy + j * lanes<T>, right[j]);
        __builtin_prefetch(b + 8 * ldb + j * lanes<T>);  // rows of b are apart, which hides them from the hardware
      });
      copy += vectors * lanes<T>;
    } else {
      __builtin_prefetch(next);
      next += lanes<T>;
    }
    a += by_row ? 1 : lda;
    b += ldb;
  };
  // Each of the first steps also prefetches a row of c. All rows at once would delay the loads; a later prefetch would
  // delay the end.
  const int64_t fetches = std::min<int64_t>(k, rows);
  const T* c_ahead = out.c;
  for (int64_t p = 0; p < fetches; ++p, c_ahead += out.ldc) {
    unroll<vectors>([&](auto j) __attribute__((always_inline)) { __builtin_prefetch(c_ahead + j * lanes<T>, 1); });
    step();
  }
  for (int64_t p = fetches; p < k; ++p) step();
  Vector<T> bias[vectors] = {};
  if (out.bias)
    unroll<vectors>([&](auto j) __attribute__((always_inline)) { bias[j] = load(out.bias + j * lanes<T>); });
  const auto write = [&](auto add) __attribute__((always_inline)) {
    unroll<rows>([&](auto i) __attribute__((always_inline)) {
      unroll<vectors>([&](auto j) __attribute__((always_inline)) {
        T* c = out.c + i * out.ldc + j * lanes<T>;
        store(c, sum[i][j] + (add ? load(c) + bias[j] : bias[j]));
      });
    });
  };
  out.add ? write(std::true_type{}) : write(std::false_type{});
}

template <class T> using Tile = void (*)(int64_t, const T*, int64_t, const T*, int64_t, const T*, T*, TileOutput<T>);

template <class T, int vectors, bool by_row, int... i>
constexpr std::array<Tile<T>, most_tile_rows> tiles_of_height(std::integer_sequence<int, i...>) {
  return {multiply_tile<T, i + 1, vectors, by_row, false>...};
}

template <class T, bool by_row, int... i>
constexpr std::array<std::array<Tile<T>, most_tile_rows>, tile_vectors> tiles_of_width(
    std::integer_sequence<int, i...>) {
  return {tiles_of_height<T, i + 1, by_row>(std::make_integer_sequence<int, rows_of_tile(i + 1)>{})...};
}

template <class T, bool by_row, int... i>
constexpr std::array<std::array<Tile<T>, 2>, tile_vectors> copying_tiles_of_width(std::integer_sequence<int, i...>) {
  return {
      {{multiply_tile<T, tile_rows, i + 1, by_row, true>, multiply_tile<T, tile_rows - 1, i + 1, by_row, true>}...}};
}

/// tiles<T>[a is transposed][vectors - 1][rows - 1]
template <class T>
constexpr std::array tiles{tiles_of_width<T, true>(std::make_integer_sequence<int, tile_vectors>{}),
                           tiles_of_width<T, false>(std::make_integer_sequence<int, tile_vectors>{})};

/// copying_tiles<T>[a is transposed][vectors - 1][tile_rows - rows]: there are none of less than tile_rows - 1.
template <class T>
constexpr std::array copying_tiles{copying_tiles_of_width<T, true>(std::make_integer_sequence<int, tile_vectors>{}),
                                   copying_tiles_of_width<T, false>(std::make_integer_sequence<int, tile_vectors>{})};

}  // namespace weft::cpu
