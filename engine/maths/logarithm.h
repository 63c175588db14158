// SPDX-License-Identifier: Apache-2.0
#pragma once
// log(x), and log(1 + x) without rounding the sum.
#include <cmath>
#include <concepts>
#include <limits>

#include "weft/engine/maths/format.h"

namespace weft::maths {

namespace detail {

// x = 2^k m with m in [2/3, 4/3), for normal x > 0.
template <class T> struct Split {
  static constexpr Bits<T> least = bits(T(2) / T(3)), fraction = (Bits<T>(1) << Format<T>::mantissa) - 1;
  Bits<T> above;  // k above the bits of m - 2/3

  WEFT_HD explicit Split(T x) : above(bits(x) - least) {}
  WEFT_HD T m() const { return from_bits<T>((above & fraction) + least); }
  WEFT_HD Bits<T> biased() const { return (above + bits(T(1))) >> Format<T>::mantissa; }  // k + bias
  // AVX2 neither shifts nor converts negative 64-bit integers, so they become doubles as low bits of the rounder.
  WEFT_HD T k() const {
    if constexpr (sizeof(T) == sizeof(int32_t)) return T(int32_t(above) >> Format<T>::mantissa);
    return from_bits<T>(bits(rounder<T, -Format<T>::bias>) + biased()) - rounder<T, 0>;
  }
};

// log(2^k (1 + f)).
template <class T> WEFT_HD inline T logarithm(T k, T f) {
  using F = Format<T>;
  const T f2 = f * f;
  const T log1p_f = std::fma(f2, polynomial(F::log_tail, f, f2), f);
  return std::fma(k, F::ln2, std::fma(k, F::ln2_rest, log1p_f));
}

}  // namespace detail

template <std::floating_point T> WEFT_HD inline T log(T x) {
  if constexpr (on_device) {
    return ::log(x);
  } else {
    using F = Format<T>;
    const bool subnormal = x < std::numeric_limits<T>::min();
    const T normal = subnormal ? x * T(int64_t(1) << F::mantissa) : x;
    const detail::Split split(normal);
    T y = detail::logarithm(subnormal ? split.k() - F::mantissa : split.k(), split.m() - 1);
    y = x < detail::infinity<T> ? y : x;
    y = x == 0 ? -detail::infinity<T> : y;
    return x < 0 ? detail::nan<T> : y;
  }
}

// The rounded 1 + x only determines k. Then 2^-k (1 + x) - 1 is computed from the exact x and rounded once.
template <std::floating_point T> WEFT_HD inline T log1p(T x) {
  if constexpr (on_device) {
    return ::log1p(x);
  } else {
    using F = Format<T>;
    const detail::Split split(1 + x);
    const T scale = T(0.25) * detail::power_of_two<T>(2 * F::bias + 2 - split.biased());  // 2^-k, or subnormal
    T y = std::copysign(detail::logarithm(split.k(), std::fma(scale, x, scale - 1)), x);
    y = x < detail::infinity<T> ? y : x;
    y = x == -1 ? -detail::infinity<T> : y;
    return x < -1 ? detail::nan<T> : y;
  }
}

// The same bits in half of the time, for x from 0 to 1, such as e^-|y|.
template <std::floating_point T> WEFT_HD inline T log1p_of_fraction(T x) {
  if constexpr (on_device) {
    return ::log1p(x);
  } else {
    const bool halved = 1 + x >= 2 * (T(2) / T(3));  // the k of Split
    return detail::logarithm(halved ? T(1) : T(0), halved ? std::fma(T(0.5), x, T(-0.5)) : x);
  }
}

}  // namespace weft::maths
