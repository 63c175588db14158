// SPDX-License-Identifier: Apache-2.0
#pragma once
// e^x, and e^x - 1 without cancellation.
#include <cmath>
#include <concepts>

#include "weft/engine/maths/format.h"

namespace weft::maths {

namespace detail {

// x = n ln2 + r with |r| <= ln2 / 2, and e^r - 1. The leading bits of x - n ln2 cancel, so it is exact with FMA. If 1
// is added to the result and x <= 0, the rounded ln2 suffices: its error adds less than an ulp times |n| 2^n.
enum class Ln2 { exact, rounded };

template <class T> struct Exponential {
  Bits<T> n_plus_excess;  // in the low bits; the high bits are those of the rounder
  T expm1_r;
};

template <int excess, Ln2 ln2 = Ln2::exact, class T> WEFT_HD inline Exponential<T> exponential(T x) {
  using F = Format<T>;
  const T shifted = std::fma(x, F::log2e, rounder<T, excess>), n = shifted - rounder<T, excess>;
  const T near_r = std::fma(-n, F::ln2, x), r = ln2 == Ln2::exact ? std::fma(-n, F::ln2_rest, near_r) : near_r;
  const T r2 = r * r;
  return {bits(shifted), std::fma(r2, polynomial(F::exp_tail, r, r2), r)};
}

}  // namespace detail

// The two factors of 2^n stay in range if e^x is subnormal (gradual underflow) or nearly overflows.
template <std::floating_point T> WEFT_HD inline T exp(T x) {
  if constexpr (on_device) {
    return ::exp(x);
  } else {
    using F = Format<T>;
    const auto [n, expm1_r] = detail::exponential<2 * F::bias>(x);
    const T scale = detail::power_of_two<T>(n >> 1);
    T y = std::fma(expm1_r, scale, scale) * detail::power_of_two<T>(n - (n >> 1));
    y = x < F::exp_zero ? 0 : y;
    return x > F::exp_infinite ? detail::infinity<T> : y;
  }
}

// 2^n e^r - 1 = 2^n (e^r - 1) + (2^n - 1). Half of it is computed first, because 2^n may overflow when the result does
// not.
template <std::floating_point T> WEFT_HD inline T expm1(T x) {
  if constexpr (on_device) {
    return ::expm1(x);
  } else {
    using F = Format<T>;
    const auto [n, expm1_r] = detail::exponential<F::bias - 1>(x);
    const T half_scale = detail::power_of_two<T>(n);
    T y = 2 * std::fma(half_scale, expm1_r, half_scale - T(0.5));
    y = x < -F::expm1_one ? -1 : y;
    y = x > F::exp_infinite ? detail::infinity<T> : y;
    return std::copysign(y, x);  // for -0
  }
}

}  // namespace weft::maths
