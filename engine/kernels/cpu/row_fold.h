// SPDX-License-Identifier: Apache-2.0
#pragma once
// Sums and extremes over a row, in the same order on every CPU. A row is read in pieces of 64 bytes, which are one
// vector on some CPUs and several on others. Pieces are combined with four running values of 64 bytes in rotation,
// because a combination has to wait for the previous one with the same value; the last pieces, fewer than four, all go
// to the first of these. Then the running values are combined in halves. The elements that do not fill a piece are
// combined last, one by one.
#include <cstdint>
#include <functional>
#include <utility>

#include "weft/engine/kernels/cpu/simd.h"

namespace weft::cpu {

// The elements of a row that a kernel reads or writes at once: at(x) is a vector of elements x[i...], or the single
// element x[i] at the end of a row; at(c) is the value c for each of them.
template <class T> struct Several {
  int64_t i;
  Vector<T> operator()(const T* x) const { return load(x + i); }
  Vector<T> operator()(T value) const { return broadcast(value); }
  void put(Vector<T> values, T* y) const { store(y + i, values); }
};
template <class T> struct Single {
  int64_t i;
  T operator()(const T* x) const { return x[i]; }
  T operator()(T value) const { return value; }
  void put(T value, T* y) const { y[i] = value; }
};

template <class T, class F> void for_all(int64_t n, F f) {
  int64_t i = 0;
  for (; i + lanes<T> <= n; i += lanes<T>) f(Several<T>{i});
  for (; i < n; ++i) f(Single<T>{i});
}

// The elements of a vector, combined in halves: each round rotates by half the width of the one before.
template <class T, int width = lanes<T> / 2, class Combine> T across(Vector<T> v, Combine combine) {
  const auto rotated = [&]<int... l>(std::integer_sequence<int, l...>) {
    return __builtin_shufflevector(v, v, (l + width) % lanes<T>...);
  };
  v = combine(v, rotated(std::make_integer_sequence<int, lanes<T>>()));
  if constexpr (width > 1)
    return across<T, width / 2>(v, combine);
  else
    return v[0];
}

// The result of result = step(result, at) for every `at` of a row, where `combine` unites two results.
template <class T, class Step, class Combine>
[[gnu::always_inline]] inline T fold(int64_t begin, int64_t end, T start, Step step, Combine combine) {
  constexpr int parts = 64 / vector_bytes;            // vectors that make up 64 bytes
  constexpr int64_t width = 64 / int64_t(sizeof(T));  // elements in them
  T result = start;
  int64_t i = begin;
  if (end - begin >= width) {
    Vector<T> running[4 * parts];
    unroll<4 * parts>([&](auto part) __attribute__((always_inline)) { running[part] = broadcast(start); });
    const auto take = [&](auto part) __attribute__((always_inline)) {
      running[part] = step(running[part], Several<T>{i + part * lanes<T>});
    };
    for (; i + 4 * width <= end; i += 4 * width) unroll<4 * parts>(take);
    for (; i + width <= end; i += width) unroll<parts>(take);
    unroll<parts>([&](auto p) __attribute__((always_inline)) {
      running[p] =
          combine(combine(running[p], running[parts + p]), combine(running[2 * parts + p], running[3 * parts + p]));
    });
    for (int half = parts / 2; half > 0; half /= 2)
      for (int p = 0; p < half; ++p) running[p] = combine(running[p], running[p + half]);
    result = across<T>(running[0], combine);
  }
  for (; i < end; ++i) result = step(result, Single<T>{i});
  return result;
}

// The sum of f(at), or of f(at) g(at), where each product is fused with its addition.
template <class T, class F> [[gnu::always_inline]] inline T folded_sum(int64_t begin, int64_t end, F f) {
  return fold(
      begin, end, T(0), [f](auto sum, auto at) { return sum + f(at); }, std::plus<>());
}
template <class T, class F, class G> [[gnu::always_inline]] inline T folded_sum(int64_t begin, int64_t end, F f, G g) {
  return fold(
      begin, end, T(0), [f, g](auto sum, auto at) { return fused_multiply_add(f(at), g(at), sum); }, std::plus<>());
}

}  // namespace weft::cpu
