// SPDX-License-Identifier: Apache-2.0
#pragma once
// The transforms of winograd.h, of a row, a column and a tile.

#include <type_traits>

#include "weft/engine/kernels/cpu/simd.h"

namespace weft::cpu::winograd {

template <class V> using Element = std::remove_cvref_t<decltype(V{}[0])>;

template <class V> [[gnu::always_inline]] inline V times(double factor, V v) { return v * Element<V>(factor); }
template <class V> [[gnu::always_inline]] inline V plus(V sum, double factor, V v) {
  return fused_multiply_add(v, broadcast(Element<V>(factor)), sum);
}

// The transforms of a column or row. What a transform does not need as an input, it does not read.

/// F(2, 3): two outputs from four products.
namespace of_two {
constexpr auto in = [](auto& a, auto& b, auto& c, auto& d) __attribute__((always_inline)) {
  const auto second = b + c, third = c - b;
  a -= c, d = b - d, b = second, c = third;
};
constexpr auto spread = [](auto& a, auto& b, auto& c, auto& d) __attribute__((always_inline)) {
  const auto ends = a + c, middle = b;
  d = c, b = times(0.5, ends + middle), c = times(0.5, ends - middle);
};
constexpr auto spread_adjoint = [](auto& a, auto& b, auto& c, auto& d) __attribute__((always_inline)) {
  const auto sum = times(0.5, b + c), difference = times(0.5, b - c);
  a += sum, b = difference, c = sum + d;
};
constexpr auto out = [](auto& a, auto& b, auto& c, auto& d) __attribute__((always_inline)) {
  a = a + b + c, b = b - c - d;
};
constexpr auto out_adjoint = [](auto& a, auto& b, auto& c, auto& d) __attribute__((always_inline)) {
  d = -b, c = a - b, b = a + b;
};
}  // namespace of_two

/// F(4, 3): four outputs from six products. The product of two polynomials is found from their values at 0, p, -p, q,
/// -q and infinity; even and odd powers are summed apart. No other of ten pairs p, q had clearly smaller rounding
/// errors; those of the usual 1 and 2 are 1.4 times as large.
namespace of_four {
constexpr double p = 0.75, q = 1.5, pp = p * p, qq = q * q;
constexpr double at_0 = 1 / (pp * qq), at_p = 0.5 / (pp * (pp - qq)), at_q = 0.5 / (qq * (qq - pp));

constexpr auto in = [](auto& a, auto& b, auto& c, auto& d, auto& e, auto& f) __attribute__((always_inline)) {
  const auto even_p = plus(e, -qq, c), odd_p = plus(d, -qq, b), even_q = plus(e, -pp, c), odd_q = plus(d, -pp, b);
  a = plus(plus(e, -pp - qq, c), pp * qq, a), f = plus(plus(f, -pp - qq, d), pp * qq, b);
  b = plus(even_p, p, odd_p), c = plus(even_p, -p, odd_p), d = plus(even_q, q, odd_q), e = plus(even_q, -q, odd_q);
};
constexpr auto spread = [](auto& a, auto& b, auto& c, auto& d, auto& e, auto& f) __attribute__((always_inline)) {
  const auto even_p = times(at_p, plus(a, pp, c)), even_q = times(at_q, plus(a, qq, c)), odd = b;
  f = c, a = times(at_0, a);
  b = plus(even_p, p * at_p, odd), c = plus(even_p, -p * at_p, odd);
  d = plus(even_q, q * at_q, odd), e = plus(even_q, -q * at_q, odd);
};
constexpr auto spread_adjoint =
    [](auto& a, auto& b, auto& c, auto& d, auto& e, auto& f) __attribute__((always_inline)) {
  const auto even_p = times(at_p, b + c), odd_p = b - c, even_q = times(at_q, d + e), odd_q = d - e;
  a = plus(even_p + even_q, at_0, a), b = plus(times(p * at_p, odd_p), q * at_q, odd_q);
  c = plus(plus(f, pp, even_p), qq, even_q);
};
constexpr auto out = [](auto& a, auto& b, auto& c, auto& d, auto& e, auto& f) __attribute__((always_inline)) {
  const auto even_p = b + c, odd_p = b - c, even_q = d + e, odd_q = d - e;
  a = a + even_p + even_q, b = plus(times(p, odd_p), q, odd_q), c = plus(times(pp, even_p), qq, even_q);
  d = plus(plus(f, p * pp, odd_p), q * qq, odd_q);
};
constexpr auto out_adjoint = [](auto& a, auto& b, auto& c, auto& d, auto& e, auto& f) __attribute__((always_inline)) {
  const auto even_p = plus(a, pp, c), odd_p = plus(b, pp, d), even_q = plus(a, qq, c), odd_q = plus(b, qq, d);
  f = d;
  b = plus(even_p, p, odd_p), c = plus(even_p, -p, odd_p), d = plus(even_q, q, odd_q), e = plus(even_q, -q, odd_q);
};
}  // namespace of_four

constexpr int places = 24;  // of a tile

/// The same place of several channels.
template <class T> struct Tile {
  Vector<T> at[4][6];

  /// Transforms the first `count` columns, or rows.
  template <int count, class F> void columns(F&& f) {
    unroll<count>([&](auto j) __attribute__((always_inline)) { f(at[0][j], at[1][j], at[2][j], at[3][j]); });
  }
  template <int count, class F> void rows(F&& f) {
    unroll<count>([&](auto i) __attribute__((always_inline)) {
      f(at[i][0], at[i][1], at[i][2], at[i][3], at[i][4], at[i][5]);
    });
  }
};

// The transforms of a tile.
constexpr auto in = [](auto& tile) __attribute__((always_inline)) {
  tile.template columns<6>(of_two::in);
  tile.template rows<4>(of_four::in);
};
constexpr auto spread = [](auto& tile) __attribute__((always_inline)) {
  tile.template rows<3>(of_four::spread);
  tile.template columns<6>(of_two::spread);
};
constexpr auto spread_adjoint = [](auto& tile) __attribute__((always_inline)) {
  tile.template columns<6>(of_two::spread_adjoint);
  tile.template rows<3>(of_four::spread_adjoint);
};
constexpr auto out = [](auto& tile) __attribute__((always_inline)) {
  tile.template columns<6>(of_two::out);
  tile.template rows<2>(of_four::out);
};
constexpr auto out_adjoint = [](auto& tile) __attribute__((always_inline)) {
  tile.template rows<2>(of_four::out_adjoint);
  tile.template columns<6>(of_two::out_adjoint);
};

}  // namespace weft::cpu::winograd
