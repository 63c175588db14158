// SPDX-License-Identifier: Apache-2.0
#include "weft/engine/kernels/cpu/products/winograd.h"

#include <algorithm>
#include <type_traits>

#include "weft/engine/kernels/cpu/scratch.h"
#include "weft/engine/kernels/cpu/simd.h"

namespace weft::cpu::winograd {
namespace {

constexpr int places = 16;    // of a square of 4 x 4
constexpr int64_t gap = 144;  // between the matrices of two places, lest their rows compete for one set of the cache
constexpr int64_t fewest_channels = 64;
// Transformed squares that are multiplied together: they should stay in L2, but each lot reads the weights again.
constexpr int64_t lot_bytes = 512 * 1024, smallest_lot = 108;

/// Squares of the transforms: the same place of several channels.
template <class T> struct Square {
  Vector<T> at[4][4];

  /// Transforms the first `rows` rows, and then the first `columns` columns.
  template <int rows, int columns, class F> void transform(F&& f) {
    unroll<rows>([&](auto i) __attribute__((always_inline)) { f(at[i][0], at[i][1], at[i][2], at[i][3]); });
    unroll<columns>([&](auto j) __attribute__((always_inline)) { f(at[0][j], at[1][j], at[2][j], at[3][j]); });
  }
};

// The transforms of one row or column. What a transform does not need as an input, it does not read.
constexpr auto in = [](auto& a, auto& b, auto& c, auto& d) __attribute__((always_inline)) {
  const auto second = b + c, third = c - b;
  a -= c, d = b - d, b = second, c = third;
};
constexpr auto spread = [](auto& a, auto& b, auto& c, auto& d) __attribute__((always_inline)) {
  const auto ends = a + c, middle = b;
  d = c, b = (ends + middle) * 0.5f, c = (ends - middle) * 0.5f;
};
constexpr auto spread_adjoint = [](auto& a, auto& b, auto& c, auto& d) __attribute__((always_inline)) {
  const auto sum = (b + c) * 0.5f, difference = (b - c) * 0.5f;
  a += sum, b = difference, c = sum + d;
};
constexpr auto out = [](auto& a, auto& b, auto& c, auto& d) __attribute__((always_inline)) {
  a = a + b + c, b = b - c - d;
};
constexpr auto out_adjoint = [](auto& a, auto& b, auto& c, auto& d) __attribute__((always_inline)) {
  d = -b, c = a - b, b = a + b;
};

/// Calls body(column, left) for every vector of a row. All but a last part have the constant left = lanes<T>, so that
/// their body is compiled without a test for the end.
template <class T, class F> void for_each_vector(int64_t columns, F&& body) {
  int64_t column = 0;
  for (; column + lanes<T> <= columns; column += lanes<T>) body(column, std::integral_constant<int64_t, lanes<T>>{});
  if (column < columns) body(column, columns - column);
}

/// Matrices, one for each place of the square, of `rows` x `columns`.
template <class T> struct Matrices {
  T* data;
  int64_t rows, columns;

  static int64_t size(int64_t rows, int64_t columns) { return places * (rows * columns + gap); }

  T* of(int64_t place) const { return data + place * (rows * columns + gap); }
  template <class L>
  [[gnu::always_inline]] void write(const Square<T>& square, int64_t row, int64_t column, L left) const {
    unroll<places>([&](auto p) __attribute__((always_inline)) {
      store_next(of(p) + row * columns + column, square.at[p / 4][p % 4], left);
    });
  }
  template <class L> [[gnu::always_inline]] Square<T> read(int64_t row, int64_t column, L left) const {
    Square<T> square;
    unroll<places>([&](auto p) __attribute__((always_inline)) {
      square.at[p / 4][p % 4] = load_next(of(p) + row * columns + column, left);
    });
    return square;
  }
};

/// Images whose squares are transformed: of `side` x `side` pixels, one at every second row and column.
struct Squares {
  int64_t height, width, channels, top, left;  // of the first square: minus the padding
  int64_t down, across;                        // how many an image has

  int64_t per_image() const { return down * across; }

  /// Calls body(row, column, offset of the pixel, or -1 in the padding) for the pixels of a square.
  template <int side, class F> void for_each_pixel(int64_t number, F&& body) const {
    const int64_t image = number / per_image(), y = top + number / across % down * 2, x = left + number % across * 2;
    for (int i = 0; i < side; ++i)
      for (int j = 0; j < side; ++j) {
        const bool inside = y + i >= 0 && y + i < height && x + j >= 0 && x + j < width;
        body(i, j, inside ? ((image * height + y + i) * width + x + j) * channels : -1);
      }
  }
};

Squares of_inputs(const Convolution& c) {
  return {c.height, c.width, c.channels, -c.pad_y, -c.pad_x, c.out_height / 2, c.out_width / 2};
}
Squares of_outputs(const Convolution& c) {
  return {c.out_height, c.out_width, c.out_channels, 0, 0, c.out_height / 2, c.out_width / 2};
}
int64_t count_of_squares(const Convolution& c) { return c.batch * (c.out_height / 2) * (c.out_width / 2); }

template <class T> int64_t lot_of(const Convolution& c) {
  const int64_t each = places * (c.channels + c.out_channels) * int64_t(sizeof(T));
  return std::max(lot_bytes / each, smallest_lot);
}

/// Transforms squares of side x side pixels, from number `first` on, to the rows of `to`.
template <int side, class T, class F>
void gather(const Squares& squares, const T* images, int64_t first, const Matrices<T>& to, F&& transform) {
  for (int64_t row = 0; row < to.rows; ++row) {
    const T* pixels[side][side];
    squares.for_each_pixel<side>(
        first + row, [&](int i, int j, int64_t offset) { pixels[i][j] = offset < 0 ? nullptr : images + offset; });
    for_each_vector<T>(
        to.columns, [&](int64_t channel, auto left) __attribute__((always_inline)) {
          Square<T> square;
          unroll<side>([&](auto i) __attribute__((always_inline)) {
            unroll<side>([&](auto j) __attribute__((always_inline)) {
              const T* const from = pixels[i][j];
              square.at[i][j] = from ? load_next(from + channel, left) : Vector<T>{};
            });
          });
          square.template transform<side, 4>(transform);
          to.write(square, row, channel, left);
        });
  }
}

/// The reverse, for outputs: writes the pixels and finishes them.
template <class T>
void scatter(const Squares& squares, T* images, int64_t first, const Matrices<T>& from, const Epilogue<T>& epilogue) {
  for (int64_t row = 0; row < from.rows; ++row) {
    T* pixels[2][2];
    squares.for_each_pixel<2>(first + row, [&](int i, int j, int64_t offset) { pixels[i][j] = images + offset; });
    for_each_vector<T>(
        from.columns, [&](int64_t channel, auto left) __attribute__((always_inline)) {
          Square<T> square = from.read(row, channel, left);
          square.template transform<4, 2>(out);
          const Vector<T> bias = epilogue.bias ? load_next(epilogue.bias + channel, left) : Vector<T>{};
          unroll<2>([&](auto i) __attribute__((always_inline)) {
            unroll<2>([&](auto j) __attribute__((always_inline)) {
              store_next(pixels[i][j] + channel, square.at[i][j] + bias, left);
            });
          });
        });
    if (!epilogue.finish) continue;
    for (T* pixel : {pixels[0][0], pixels[0][1], pixels[1][0], pixels[1][1]})
      epilogue.finish(epilogue.context, pixel, (pixel - images) / from.columns, 0, from.columns);
  }
}

/// The transformed weights; those of the input gradient are turned by half a turn.
template <class T> void spread_weights(const T* w, bool turned, const Matrices<T>& to) {
  for (int64_t row = 0; row < to.rows; ++row)
    for_each_vector<T>(
        to.columns, [&](int64_t column, auto left) __attribute__((always_inline)) {
          Square<T> square;
          unroll<9>([&](auto tap) __attribute__((always_inline)) {
            square.at[tap / 3][tap % 3] =
                load_next(w + ((turned ? 8 - tap : tap) * to.rows + row) * to.columns + column, left);
          });
          square.template transform<3, 4>(spread);
          to.write(square, row, column, left);
        });
}

/// Its adjoint: the gradient of the weights from that of the transformed ones.
template <class T> void gather_weights(const Matrices<T>& from, T* dw) {
  for (int64_t row = 0; row < from.rows; ++row)
    for_each_vector<T>(
        from.columns, [&](int64_t column, auto left) __attribute__((always_inline)) {
          Square<T> square = from.read(row, column, left);
          square.template transform<4, 3>(spread_adjoint);
          unroll<9>([&](auto tap) __attribute__((always_inline)) {
            store_next(dw + (tap * from.rows + row) * from.columns + column, square.at[tap / 3][tap % 3], left);
          });
        });
}

/// y of a convolution, or dx as one of g with the turned weights.
template <class T>
void correlate(const Convolution& c, const T* x, const T* w, bool turned, T* y, const Epilogue<T>& epilogue) {
  thread_local Scratch<T> memory;
  thread_local PackedB<T> weights[places];
  const int64_t total = count_of_squares(c), lots = std::max<int64_t>(1, (total + lot_of<T>(c) / 2) / lot_of<T>(c));
  const int64_t lot = (total + lots - 1) / lots;  // a small last one would read all weights for few squares
  const int64_t of_lot = Matrices<T>::size(lot, c.channels) + Matrices<T>::size(lot, c.out_channels);
  T* const buffer = memory.at_least(std::max(of_lot, Matrices<T>::size(c.channels, c.out_channels)));
  const Matrices<T> transformed{buffer, turned ? c.out_channels : c.channels, turned ? c.channels : c.out_channels};
  spread_weights(w, turned, transformed);
  for (int p = 0; p < places; ++p)
    weights[p].pack(turned, c.out_channels, c.channels, transformed.of(p), transformed.columns);
  for (int64_t first = 0; first < total; first += lot) {
    const int64_t rows = std::min(lot, total - first);
    const Matrices<T> inputs{buffer, rows, c.channels};
    const Matrices<T> outputs{inputs.of(places), rows, c.out_channels};
    gather<4>(of_inputs(c), x, first, inputs, in);
    for (int p = 0; p < places; ++p)
      gemm(false, rows, inputs.of(p), c.channels, weights[p], outputs.of(p), c.out_channels);
    scatter(of_outputs(c), y, first, outputs, epilogue);
  }
}

}  // namespace

bool suits(const Convolution& c) {
  const bool by_three = c.kernel_height == 3 && c.kernel_width == 3;
  const bool dense = c.stride_y == 1 && c.stride_x == 1 && c.dilation_y == 1 && c.dilation_x == 1;
  const bool whole_squares = c.out_height % 2 == 0 && c.out_width % 2 == 0;
  return by_three && dense && whole_squares && std::max(c.pad_y, c.pad_x) <= 2 &&
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
  const int64_t lot = lot_of<T>(c), total = count_of_squares(c);
  const int64_t of_lot = Matrices<T>::size(lot, c.channels) + Matrices<T>::size(lot, c.out_channels);
  T* const buffer = memory.at_least(of_lot + Matrices<T>::size(c.channels, c.out_channels));
  const Matrices<T> sums{buffer + of_lot, c.channels, c.out_channels};
  Epilogue<T> epilogue;
  for (int64_t first = 0; first == 0 || first < total; first += lot) {
    const int64_t rows = std::min(lot, total - first);
    const Matrices<T> inputs{buffer, rows, c.channels};
    const Matrices<T> slopes{inputs.of(places), rows, c.out_channels};
    gather<4>(of_inputs(c), x, first, inputs, in);
    gather<2>(of_outputs(c), g, first, slopes, out_adjoint);
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
