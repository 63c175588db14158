// SPDX-License-Identifier: Apache-2.0
#include "weft/engine/kernels/cpu/products/winograd.h"

#include <algorithm>
#include <type_traits>

#include "weft/engine/kernels/cpu/products/winograd_tile.h"
#include "weft/engine/kernels/cpu/scratch.h"

namespace weft::cpu::winograd {
namespace {

constexpr int64_t gap = 144;  // between the matrices of two places, lest their rows compete for one set of the cache
constexpr int64_t fewest_channels = 64;
constexpr int64_t longest_block = 64;  // of a sum over channels; then its rounding errors do not grow with them
// Transformed tiles that are multiplied together: they should stay in L2, but each lot reads the weights again.
constexpr int64_t lot_bytes = 512 * 1024, smallest_lot = 108;

/// Calls body(column, left) for every vector of a row. All but a last part have the constant left = lanes<T>, so that
/// their body is compiled without a test for the end.
template <class T, class F> void for_each_vector(int64_t columns, F&& body) {
  int64_t column = 0;
  for (; column + lanes<T> <= columns; column += lanes<T>) body(column, std::integral_constant<int64_t, lanes<T>>{});
  if (column < columns) body(column, columns - column);
}

/// Matrices, one for each place of the tile, of `rows` x `columns`.
template <class T> struct Matrices {
  T* data;
  int64_t rows, columns;

  static int64_t size(int64_t rows, int64_t columns) { return places * (rows * columns + gap); }

  T* of(int64_t place) const { return data + place * (rows * columns + gap); }
  template <class L> [[gnu::always_inline]] void write(const Tile<T>& tile, int64_t row, int64_t column, L left) const {
    unroll<places>([&](auto p) __attribute__((always_inline)) {
      store_next(of(p) + row * columns + column, tile.at[p / 6][p % 6], left);
    });
  }
  template <class L> [[gnu::always_inline]] Tile<T> read(int64_t row, int64_t column, L left) const {
    Tile<T> tile;
    unroll<places>([&](auto p) __attribute__((always_inline)) {
      tile.at[p / 6][p % 6] = load_next(of(p) + row * columns + column, left);
    });
    return tile;
  }
};

/// Images whose tiles are transformed; one begins at every second row and fourth column.
struct Tiles {
  int64_t height, width, channels, top, left;  // of the first tile: minus the padding
  int64_t down, across;                        // how many an image has

  int64_t per_image() const { return down * across; }

  /// Calls body(row, column, offset of the pixel, or -1 outside of the image) for the pixels of a tile.
  template <int rows, int columns, class F> void for_each_pixel(int64_t number, F&& body) const {
    const int64_t image = number / per_image(), y = top + number / across % down * 2, x = left + number % across * 4;
    for (int i = 0; i < rows; ++i)
      for (int j = 0; j < columns; ++j) {
        const bool inside = y + i >= 0 && y + i < height && x + j >= 0 && x + j < width;
        body(i, j, inside ? ((image * height + y + i) * width + x + j) * channels : -1);
      }
  }
};

Tiles of_inputs(const Convolution& c) {
  return {c.height, c.width, c.channels, -c.pad_y, -c.pad_x, (c.out_height + 1) / 2, (c.out_width + 3) / 4};
}
Tiles of_outputs(const Convolution& c) {
  return {c.out_height, c.out_width, c.out_channels, 0, 0, (c.out_height + 1) / 2, (c.out_width + 3) / 4};
}
int64_t count_of_tiles(const Convolution& c) { return c.batch * of_outputs(c).per_image(); }

template <class T> int64_t lot_of(const Convolution& c) {
  const int64_t each = places * (c.channels + c.out_channels) * int64_t(sizeof(T));
  return std::max(lot_bytes / each, smallest_lot);
}

/// For each output of a tile: 0 where its window is all zero, else 1. The tile's other pixels leave a rounding error
/// there, of which a layer norm would make features.
template <class T> struct Reached { T at[2][4]; };
template <class T> Reached<T> reached_from(const T* const (&pixels)[4][6], int64_t channels) {
  const auto has_values = [&](int i, int j) {
    return std::any_of(pixels[i][j], pixels[i][j] + channels, [](T value) { return value != 0; });
  };
  if (has_values(1, 2) && has_values(1, 3)) return {{{1, 1, 1, 1}, {1, 1, 1, 1}}};  // each window has one of these
  Reached<T> reached{};
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 6; ++j)
      if (has_values(i, j))
        for (int y = std::max(i - 2, 0); y <= std::min(i, 1); ++y)
          for (int x = std::max(j - 2, 0); x <= std::min(j, 3); ++x) reached.at[y][x] = 1;
  return reached;
}

/// Transforms tiles of rows x columns pixels, from number `first` on, to the rows of `to`. `zeros` are the pixels
/// outside of the image. look(row, pixels) sees each tile.
template <int rows, int columns, class T, class F, class L>
void gather(const Tiles& tiles, const T* images, int64_t first, const Matrices<T>& to, const T* zeros, F&& transform,
            L&& look) {
  for (int64_t row = 0; row < to.rows; ++row) {
    const T* pixels[rows][columns];
    tiles.for_each_pixel<rows, columns>(
        first + row, [&](int i, int j, int64_t offset) { pixels[i][j] = offset < 0 ? zeros : images + offset; });
    look(row, pixels);
    for_each_vector<T>(
        to.columns, [&](int64_t channel, auto left) __attribute__((always_inline)) {
          Tile<T> tile;
          unroll<rows>([&](auto i) __attribute__((always_inline)) {
            unroll<columns>([&](auto j) __attribute__((always_inline)) {
              tile.at[i][j] = load_next(pixels[i][j] + channel, left);
            });
          });
          transform(tile);
          to.write(tile, row, channel, left);
        });
  }
}

/// The reverse, for outputs: writes the pixels and finishes them.
template <class T>
void scatter(const Tiles& tiles, T* images, int64_t first, const Matrices<T>& from, const Reached<T>* reached,
             const Epilogue<T>& epilogue) {
  for (int64_t row = 0; row < from.rows; ++row) {
    T* pixels[2][4];
    tiles.for_each_pixel<2, 4>(
        first + row, [&](int i, int j, int64_t offset) { pixels[i][j] = offset < 0 ? nullptr : images + offset; });
    for_each_vector<T>(
        from.columns, [&](int64_t channel, auto left) __attribute__((always_inline)) {
          Tile<T> tile = from.read(row, channel, left);
          out(tile);
          const Vector<T> bias = epilogue.bias ? load_next(epilogue.bias + channel, left) : Vector<T>{};
          unroll<2>([&](auto i) __attribute__((always_inline)) {
            unroll<4>([&](auto j) __attribute__((always_inline)) {
              if (T* const pixel = pixels[i][j])
                store_next(pixel + channel, tile.at[i][j] * reached[row].at[i][j] + bias, left);
            });
          });
        });
    if (!epilogue.finish) continue;
    for (const auto& of_row : pixels)
      for (T* const pixel : of_row)
        if (pixel) epilogue.finish(epilogue.context, pixel, (pixel - images) / from.columns, 0, from.columns);
  }
}

/// The transformed weights; those of the input gradient are turned by half a turn.
template <class T> void spread_weights(const T* w, bool turned, const Matrices<T>& to) {
  for (int64_t row = 0; row < to.rows; ++row)
    for_each_vector<T>(
        to.columns, [&](int64_t column, auto left) __attribute__((always_inline)) {
          Tile<T> tile;
          unroll<9>([&](auto tap) __attribute__((always_inline)) {
            tile.at[tap / 3][tap % 3] =
                load_next(w + ((turned ? 8 - tap : tap) * to.rows + row) * to.columns + column, left);
          });
          spread(tile);
          to.write(tile, row, column, left);
        });
}

/// Its adjoint: the gradient of the weights from that of the transformed ones.
template <class T> void gather_weights(const Matrices<T>& from, T* dw) {
  for (int64_t row = 0; row < from.rows; ++row)
    for_each_vector<T>(
        from.columns, [&](int64_t column, auto left) __attribute__((always_inline)) {
          Tile<T> tile = from.read(row, column, left);
          spread_adjoint(tile);
          unroll<9>([&](auto tap) __attribute__((always_inline)) {
            store_next(dw + (tap * from.rows + row) * from.columns + column, tile.at[tap / 3][tap % 3], left);
          });
        });
}

/// y of a convolution, or dx as one of g with the turned weights.
template <class T>
void correlate(const Convolution& c, const T* x, const T* w, bool turned, T* y, const Epilogue<T>& epilogue) {
  thread_local Scratch<T> memory;
  thread_local Scratch<Reached<T>> memory_of_reached;
  thread_local PackedB<T> weights[places];
  const int64_t total = count_of_tiles(c), lots = std::max<int64_t>(1, (total + lot_of<T>(c) / 2) / lot_of<T>(c));
  const int64_t lot = (total + lots - 1) / lots;  // a small last one would read all weights for few tiles
  Reached<T>* const reached = memory_of_reached.at_least(lot);
  const int64_t of_lot = Matrices<T>::size(lot, c.channels) + Matrices<T>::size(lot, c.out_channels);
  const int64_t size = std::max(of_lot, Matrices<T>::size(c.channels, c.out_channels));
  T* const buffer = memory.at_least(size + c.channels);
  T* const zeros = buffer + size;
  std::fill_n(zeros, c.channels, T(0));
  const Matrices<T> transformed{buffer, turned ? c.out_channels : c.channels, turned ? c.channels : c.out_channels};
  spread_weights(w, turned, transformed);
  for (int p = 0; p < places; ++p)
    weights[p].pack(turned, c.out_channels, c.channels, transformed.of(p), transformed.columns, longest_block);
  for (int64_t first = 0; first < total; first += lot) {
    const int64_t rows = std::min(lot, total - first);
    const Matrices<T> inputs{buffer, rows, c.channels};
    const Matrices<T> outputs{inputs.of(places), rows, c.out_channels};
    gather<4, 6>(of_inputs(c), x, first, inputs, zeros, in,
                 [&](int64_t row, const auto& pixels) { reached[row] = reached_from(pixels, c.channels); });
    for (int p = 0; p < places; ++p)
      gemm(false, rows, inputs.of(p), c.channels, weights[p], outputs.of(p), c.out_channels);
    scatter(of_outputs(c), y, first, outputs, reached, epilogue);
  }
}

}  // namespace

bool suits(const Convolution& c) {
  const bool by_three = c.kernel_height == 3 && c.kernel_width == 3;
  const bool dense = c.stride_y == 1 && c.stride_x == 1 && c.dilation_y == 1 && c.dilation_x == 1;
  const bool half_as_many = 2 * places * of_outputs(c).per_image() <= 9 * c.out_height * c.out_width;
  return by_three && dense && half_as_many && std::max(c.pad_y, c.pad_x) <= 2 &&
         std::min(c.channels, c.out_channels) >= fewest_channels;
}

template <class T> void forward(const Convolution& c, const T* x, const T* w, T* y, const Epilogue<T>& epilogue) {
  correlate(c, x, w, false, y, epilogue);
}

template <class T> void input_gradient(const Convolution& c, const T* g, const T* w, T* dx, const T* bias) {
  const Convolution back{.batch = c.batch,
                         .height = c.out_height,
                         .width = c.out_width,
                         .channels = c.out_channels,
                         .kernel_height = 3,
                         .kernel_width = 3,
                         .out_height = c.height,
                         .out_width = c.width,
                         .out_channels = c.channels,
                         .pad_y = 2 - c.pad_y,
                         .pad_x = 2 - c.pad_x};
  Epilogue<T> epilogue;
  epilogue.bias = bias;
  correlate(back, g, w, true, dx, epilogue);
}

template <class T> void weight_gradient(const Convolution& c, const T* x, const T* g, T* dw) {
  thread_local Scratch<T> memory;
  const int64_t lot = lot_of<T>(c), total = count_of_tiles(c);
  const int64_t of_lot = Matrices<T>::size(lot, c.channels) + Matrices<T>::size(lot, c.out_channels);
  const int64_t of_sums = Matrices<T>::size(c.channels, c.out_channels), most = std::max(c.channels, c.out_channels);
  T* const buffer = memory.at_least(of_lot + of_sums + most);
  const Matrices<T> sums{buffer + of_lot, c.channels, c.out_channels};
  T* const zeros = sums.data + of_sums;
  std::fill_n(zeros, most, T(0));
  Epilogue<T> epilogue;
  for (int64_t first = 0; first == 0 || first < total; first += lot) {
    const int64_t rows = std::min(lot, total - first);
    const Matrices<T> inputs{buffer, rows, c.channels};
    const Matrices<T> slopes{inputs.of(places), rows, c.out_channels};
    gather<4, 6>(of_inputs(c), x, first, inputs, zeros, in, [](auto&&...) {});
    gather<2, 4>(of_outputs(c), g, first, slopes, zeros, out_adjoint, [](auto&&...) {});
    epilogue.accumulate = first > 0;
    for (int p = 0; p < places; ++p)
      gemm(true, false, c.channels, c.out_channels, rows, inputs.of(p), c.channels, slopes.of(p), c.out_channels,
           sums.of(p), c.out_channels, epilogue);
  }
  gather_weights(sums, dw);
}

template void forward(const Convolution&, const float*, const float*, float*, const Epilogue<float>&);
template void forward(const Convolution&, const double*, const double*, double*, const Epilogue<double>&);
template void input_gradient(const Convolution&, const float*, const float*, float*, const float*);
template void input_gradient(const Convolution&, const double*, const double*, double*, const double*);
template void weight_gradient(const Convolution&, const float*, const float*, float*);
template void weight_gradient(const Convolution&, const double*, const double*, double*);

}  // namespace weft::cpu::winograd
