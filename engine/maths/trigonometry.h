// SPDX-License-Identifier: Apache-2.0
#pragma once
// sin and cos for |x| < 2^40. For larger |x| the result is NaN: there, neighbouring floats are 10^4 periods apart, and
// the phase of a double has few bits.
#include <cmath>
#include <cstdint>

#include "weft/engine/maths/double_double.h"
#include "weft/engine/maths/format.h"

namespace weft::maths {

namespace detail {

// x = n pi/2 + r with |r| only slightly above pi/4 at most, for |x| < 2^40. pi/2 is the sum of three doubles. The
// leading bits of x - n half_pi cancel, so it is exact with FMA.
inline constexpr double two_over_pi = 0x1.45f306dc9c883p-1;
inline constexpr double half_pi = 0x1.921fb54442d18p+0;
inline constexpr double half_pi_rest = 0x1.1a62633145c07p-54, half_pi_last = -0x1.f1976b7ed8fbcp-110;

struct Quarters {
  double n;
  uint64_t low_bits;  // of n, for the quadrant of x
  double near_r;      // x - n half_pi
};

WEFT_HD inline Quarters quarters_of(double x) {
  const double shifted = std::fma(x, two_over_pi, rounder<double, 0>), n = shifted - rounder<double, 0>;
  return {n, bits(shifted), std::fma(-n, half_pi, x)};
}

// sin(x + more pi/2) in float. The reduction is in double, where one more FMA gives more precision than float has. Both
// sin and cos of r are computed, and one is selected.
WEFT_HD inline float sine(float x, uint64_t more) {
  constexpr float sin_tail[] = {-0.166666552f, 0.00833219104f, -0.000195186047f};
  constexpr float cos_tail[] = {0.0416666456f, -0.00138873013f, 2.44306702e-05f};
  const auto [n, low_bits, near_r] = quarters_of(std::fabs(x) < 0x1p40f ? x : nan<float>);
  const float r = float(std::fma(-n, half_pi_rest, near_r)), z = r * r;
  const auto q = uint32_t(low_bits + more);
  const float s = std::copysign(std::fma(r * z, polynomial(sin_tail, z, z * z), r), r);  // for -0
  const float c = std::fma(z * z, polynomial(cos_tail, z, z * z), std::fma(z, -0.5f, 1.0f));
  const float y = q & 1 ? c : s;
  return q & 2 ? -y : y;
}

// The same in double. Near a multiple of pi/2 the remainder may come from the low parts of pi/2 alone, so these are
// subtracted with twice the precision.
WEFT_HD inline double sine(double x, uint64_t more) {
  constexpr double sin_tail[] = {-0.16666666666666632,   0.0083333333333224149,   -0.00019841269829807198,
                                 2.7557313690977522e-06, -2.5050757866681457e-08, 1.5896776197334946e-10};
  constexpr double cos_tail[] = {0.041666666666666602,    -0.0013888888888874114, 2.4801587289474869e-05,
                                 -2.7557314349912167e-07, 2.0875722910405247e-09, -1.1359627559601597e-11};
  const auto [n, low_bits, near_r] = quarters_of(std::fabs(x) < 0x1p40 ? x : nan<double>);
  const DoubleDouble beyond = product(n, half_pi_rest), r = sum(near_r, -beyond.high);
  const double low = std::fma(-n, half_pi_last, r.low - beyond.low);
  const double z = r.high * r.high, one_less = std::fma(z, -0.5, 1.0), lost = std::fma(z, -0.5, 1 - one_less);
  const double s_tail = std::fma(r.high * z, polynomial(sin_tail, z, z * z), low * one_less);
  const double c_tail = std::fma(z * z, polynomial(cos_tail, z, z * z), std::fma(-r.high, low, lost));
  const double s = std::copysign(r.high + s_tail, r.high), c = one_less + c_tail;
  const uint64_t q = low_bits + more;
  const double y = q & 1 ? c : s;
  return q & 2 ? -y : y;
}

}  // namespace detail

template <std::floating_point T> WEFT_HD inline T sin(T x) {
  if constexpr (on_device) return ::sin(x);
  return detail::sine(x, 0);
}

template <std::floating_point T> WEFT_HD inline T cos(T x) {
  if constexpr (on_device) return ::cos(x);
  return detail::sine(x, 1);
}

}  // namespace weft::maths
