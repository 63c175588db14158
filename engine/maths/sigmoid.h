// SPDX-License-Identifier: Apache-2.0
#pragma once
// tanh(x) and 1 / (1 + e^-x).
#include <cmath>
#include <concepts>

#include "weft/engine/maths/exponential.h"

namespace weft::maths {

// tanh |x| = -e / d with e = e^-2|x| - 1 and d = e^-2|x| + 1. Computing d from the product, not from e, saves half an
// ulp, because the errors of e and d do not add up.
template <std::floating_point T> WEFT_HD inline T tanh(T x) {
  if constexpr (on_device) {
    return ::tanh(x);
  } else {
    using F = Format<T>;
    const T size = std::fabs(x);
    const auto [n, expm1_r] = detail::exponential<F::bias, detail::Ln2::rounded>(-2 * size);
    const T scale = detail::power_of_two<T>(n);
    const T e = std::fma(scale, expm1_r, scale - 1), d = std::fma(scale, expm1_r, scale + 1);
    return std::copysign(size > F::tanh_one ? 1 : e / d, x);
  }
}

template <std::floating_point T> WEFT_HD inline T sigmoid(T x) { return 1 / (1 + exp(-x)); }

}  // namespace weft::maths
