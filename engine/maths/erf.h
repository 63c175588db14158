// SPDX-License-Identifier: Apache-2.0
#pragma once
// The error function.
#include <cmath>
#include <cstddef>

#include "weft/engine/maths/exponential.h"

namespace weft::maths {

namespace detail {

// For |x| below 0.9, x + x near(x^2); above it 1 - e^-p with p = |x| (1 - far(|x|)), so that nothing cancels; and 1 for
// |x| above `one`.
template <class T, std::size_t Near, std::size_t Far>
WEFT_HD inline T error_function(T x, const T (&near)[Near], const T (&far)[Far], T one) {
  const T t = std::fabs(x), z = x * x, t2 = t * t;
  const auto [n, expm1_r] = exponential<Format<T>::bias>(std::fma(t, polynomial(far, t, t2), -t));
  const T scale = power_of_two<T>(n), expm1 = std::fma(scale, expm1_r, scale - 1);
  const T large = t > one ? 1 : -expm1, small = std::fma(x, polynomial(near, z, z * z), x);
  return t > T(0.9) ? std::copysign(large, x) : small;
}

}  // namespace detail

WEFT_HD inline float erf(float x) {
  if constexpr (on_device) {
    return ::erff(x);
  } else {
    constexpr float near[] = {0.128379151f,  -0.376125038f,  0.112819217f,
                              -0.026770493f, 0.00499895914f, -0.000602080021f};
    constexpr float far[] = {-0.128637075f,   -0.635198057f,   -0.106158979f,   0.0236944836f,
                             -0.00361029431f, 0.000314844947f, -1.04317214e-05f};
    return detail::error_function(x, near, far, 4.0f);
  }
}

WEFT_HD inline double erf(double x) {
  if constexpr (on_device) {
    return ::erf(x);
  } else {
    constexpr double near[] = {0.12837916709551259,     -0.37612638903183726,    0.11283791670953705,
                               -0.026866170644806852,   0.0052239776216049241,   -0.00085483267549970102,
                               0.00012055321044332159,  -1.4925299775969166e-05, 1.6455214306041839e-06,
                               -1.6275478208951088e-07, 1.4046051987067642e-08,  -8.481848081532989e-10};
    constexpr double far[] = {
        -0.12837919954578,       -0.63661938339778301,   -0.10277479598965872,   0.01913617716080852,
        0.00019007930247422439,  -0.0016609667012258507, 0.00053989699481037361, 3.0733904901582362e-05,
        -0.00011560302128887824, 6.6850453427268672e-05, -2.49793634984889e-05,  6.9575743176347174e-06,
        -1.4982916441552125e-06, 2.4989824082297843e-07, -3.165285459320564e-08, 2.9141033313334754e-09,
        -1.7833763636959343e-10, 5.7407535887346804e-12, 3.2275730361239702e-15, -4.6172697844336273e-15};
    return detail::error_function(x, near, far, 6.0);
  }
}

}  // namespace weft::maths
