// SPDX-License-Identifier: Apache-2.0
#pragma once
// Portable SIMD: GCC/clang vector extensions, so one source is the kernel for AVX-512, AVX2, SSE2 and NEON.
// Arithmetic is written with + - * /, each rounded by itself, and fused_multiply_add(a, b, c), rounded once.

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "weft/engine/kernels/cpu/multiply_add_in_f64.h"

namespace weft::cpu {

#if defined(__AVX512F__)
constexpr int vector_bytes = 64, vector_registers = 32;
#elif defined(__AVX__)
constexpr int vector_bytes = 32, vector_registers = 16;
#elif defined(__x86_64__)
constexpr int vector_bytes = 16, vector_registers = 16;
#else
constexpr int vector_bytes = 16, vector_registers = 32;
#endif

template <class T> struct VectorOf { typedef T type __attribute__((vector_size(vector_bytes))); };

template <class T> using Vector = typename VectorOf<T>::type;

template <class T> constexpr int lanes = vector_bytes / int(sizeof(T));

/// `from` needs no alignment. If it is aligned, this is as fast as an aligned load.
template <class T> inline Vector<T> load(const T* from) {
  Vector<T> v;
  std::memcpy(&v, from, sizeof v);
  return v;
}

template <class T> inline void store(T* to, Vector<T> v) { std::memcpy(to, &v, sizeof v); }

template <class T> inline Vector<T> load_aligned(const T* from) {
  return *static_cast<const Vector<T>*>(__builtin_assume_aligned(static_cast<const void*>(from), vector_bytes));
}

template <class T> inline void store_aligned(T* to, Vector<T> v) {
  *static_cast<Vector<T>*>(__builtin_assume_aligned(static_cast<void*>(to), vector_bytes)) = v;
}

/// The first `count` lanes from memory, followed by zeros. Never reads past `from + count`. (The compiler makes a
/// masked load of this form, if it is not inlined; the same below.)
template <class T> [[gnu::noinline]] Vector<T> load_partial(const T* from, int64_t count) {
  alignas(vector_bytes) T values[lanes<T>];
  for (int i = 0; i < lanes<T>; ++i) values[i] = i < count ? from[i] : T(0);
  return load(values);
}

template <class T> [[gnu::noinline]] void store_partial(T* to, Vector<T> v, int64_t count) {
  alignas(vector_bytes) T values[lanes<T>];
  store(values, v);
  for (int i = 0; i < lanes<T>; ++i)
    if (i < count) to[i] = values[i];
}

/// The next vector of a row that has `left` elements left.
template <class T> inline Vector<T> load_next(const T* from, int64_t left) {
  return left >= lanes<T> ? load(from) : load_partial(from, left);
}

template <class T> inline void store_next(T* to, Vector<T> v, int64_t left) {
  left >= lanes<T> ? store(to, v) : store_partial(to, v, left);
}

/// Without this, g++ may read a vector again from memory at each of its uses.
template <class V> [[gnu::always_inline]] inline V kept_in_register(V v) {
#if defined(__x86_64__)
  asm("" : "+v"(v));
#elif defined(__aarch64__)
  asm("" : "+w"(v));
#endif
  return v;
}

template <class T> inline Vector<T> broadcast(T value) { return value - Vector<T>{}; }

/// a * b + c in every lane. The compiler turns the loop into one instruction.
template <class V> [[gnu::always_inline]] inline V fused_multiply_add(V a, V b, V c) {
  if constexpr (!has_fused_multiply_add && std::is_same_v<V, FourFloats>) {
    return multiply_add_in_f64(a, b, c);
  } else if constexpr (std::is_arithmetic_v<V>) {
    return std::fma(a, b, c);
  } else {
    V result;
    for (unsigned lane = 0; lane < sizeof(V) / sizeof(a[0]); ++lane) result[lane] = std::fma(a[lane], b[lane], c[lane]);
    return result;
  }
}

/// body(0), ..., body(count - 1), unrolled, so that arrays with these indices stay in registers.
template <int count, class F> [[gnu::always_inline]] inline void unroll(F&& body) {
#pragma GCC unroll 24
  for (int i = 0; i < count; ++i) body(i);
}

template <class T, int start, int... i>
inline Vector<T> interleave(Vector<T> a, Vector<T> b, std::integer_sequence<int, i...>) {
  return __builtin_shufflevector(a, b, (start + i / 2 + i % 2 * lanes<T>)...);
}

/// a0 b0 a1 b1 ... of the lower halves, and of the upper halves.
template <class T> inline Vector<T> interleave_low(Vector<T> a, Vector<T> b) {
  return interleave<T, 0>(a, b, std::make_integer_sequence<int, lanes<T>>{});
}

template <class T> inline Vector<T> interleave_high(Vector<T> a, Vector<T> b) {
  return interleave<T, lanes<T> / 2>(a, b, std::make_integer_sequence<int, lanes<T>>{});
}

}  // namespace weft::cpu
