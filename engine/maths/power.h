// SPDX-License-Identifier: Apache-2.0
#pragma once
// |x|^y = e^(y log |x|), with the rules of IEEE 754 for the sign, for zero, one and infinity, and for negative x with a
// fractional y. y log |x| is up to 745, and its absolute error is the relative error of the result, so it needs ten
// bits more than the result.
#include <cmath>
#include <cstdint>
#include <limits>

#include "weft/engine/maths/double_double.h"
#include "weft/engine/maths/format.h"
#include "weft/engine/maths/logarithm.h"

namespace weft::maths {

namespace detail {

// x^y from |x|^y.
template <class T> WEFT_HD inline T with_sign(T power, T x, T y) {
  const bool whole = std::trunc(y) == y, odd = whole && std::trunc(y * T(0.5)) * 2 != y;
  const T signed_power = odd ? std::copysign(power, x) : power;
  return x < 0 && std::fabs(x) < infinity<T> && !whole ? nan<T> : signed_power;
}

// log x with a relative error of 2^-64, for finite x > 0. With x = 2^k m, m in [2/3, 4/3), and s = (m - 1) / (m + 1),
// it is k ln2 + 2 s + s^3 (2/3 + s^2 (2/5 + ...)). Only the polynomial is in double.
WEFT_HD inline DoubleDouble precise_log(double x) {
  constexpr double tail[] = {0.39999999999999725, 0.28571428571577095, 0.2222222219127713,  0.18181821524244088,
                             0.15384406699603978, 0.13341144085160839, 0.11592350874434115, 0.12571549004298496};
  constexpr double two_thirds = 0x1.5555555555555p-1, two_thirds_rest = 0x1.5555555555555p-55;
  constexpr double ln2 = Format<double>::ln2, ln2_rest = Format<double>::ln2_rest;
  const bool subnormal = x < std::numeric_limits<double>::min();
  const double normal = subnormal ? x * 0x1p52 : x;
  const Split split(normal);
  const double k = subnormal ? split.k() - 52 : split.k(), m = split.m(), f = m - 1;

  const DoubleDouble divisor = sum_from_larger(1, m);
  const double inverse = 1 / divisor.high, quotient = f * inverse;
  const double remainder = std::fma(-quotient, divisor.low, std::fma(-quotient, divisor.high, f));
  const DoubleDouble s = {quotient, remainder * inverse}, z = product(s, s);
  const double fifth = polynomial(tail, z.high, z.high * z.high);
  const double third = std::fma(z.high, fifth, two_thirds);
  const double third_low = std::fma(z.low, fifth, std::fma(z.high, fifth, two_thirds - third) + two_thirds_rest);
  const DoubleDouble cubic = product(s, product(z, {third, third_low}));
  const DoubleDouble whole = product(k, ln2), linear = sum_from_larger(whole.high, 2 * s.high),
                     all = sum_from_larger(linear.high, cubic.high);
  const double low = linear.low + std::fma(2, s.low, cubic.low) + std::fma(k, ln2_rest, whole.low);
  return sum_from_larger(all.high, all.low + low);
}

// e^(high + low), computed as in exp, but 1 + r is exact. It is a template so that no device needs its table.
template <class F = Format<double>> WEFT_HD inline double precise_exp(DoubleDouble t) {
  const double shifted = std::fma(t.high, F::log2e, rounder<double, 2 * F::bias>);
  const double n = shifted - rounder<double, 2 * F::bias>;
  const DoubleDouble r = sum_from_larger(std::fma(-n, F::ln2, t.high), std::fma(-n, F::ln2_rest, t.low));
  const DoubleDouble near = sum_from_larger(1, r.high);
  const double r2 = r.high * r.high, tail = std::fma(r2, polynomial(F::exp_tail, r.high, r2), near.low);
  const double exp_r = near.high + std::fma(r.low, near.high, tail);
  const uint64_t half = bits(shifted) >> 1;
  return exp_r * power_of_two<double>(half) * power_of_two<double>(bits(shifted) - half);
}

}  // namespace detail

// Computed in double, whose range also excludes overflow on the way.
WEFT_HD inline float pow(float x, float y) {
  if constexpr (on_device) {
    return ::powf(x, y);
  } else {
    constexpr double log_tail[] = {
        -0.50000000001092459, 0.33333333182169794,  -0.24999999534582559, 0.20000026162880269,  -0.1666671606926364,
        0.14284212136530539,  -0.12497795779692608, 0.11150493932638472,  -0.10049155302482536, 0.085760356656365597,
        -0.07760839798239047, 0.10889736175123421,  -0.10393951768387082};
    constexpr double exp_tail[] = {0.50000000780284537,   0.16666666861009458,   0.041666269517076741,
                                   0.0083332642809948766, 0.0013946103934173773, 0.00019918426698227983};
    constexpr double ln2 = Format<double>::ln2;
    const double size = std::fabs(x), infinity = detail::infinity<double>;
    const detail::Split split(size);
    const double f = split.m() - 1, f2 = f * f;
    const double finite_log = std::fma(split.k(), ln2, std::fma(f2, detail::polynomial(log_tail, f, f2), f));
    const double log = size == 0 ? -infinity : size < infinity ? finite_log : size;
    const double t = y == 0 || size == 1 ? 0 : y * log;
    const double shifted = std::fma(t, Format<double>::log2e, detail::rounder<double, 1023>);
    const double r = std::fma(-(shifted - detail::rounder<double, 1023>), ln2, t), r2 = r * r;
    const double exp_r = std::fma(r2, detail::polynomial(exp_tail, r, r2), r) + 1;
    const double product = exp_r * detail::power_of_two<double>(detail::bits(shifted));
    const float power = t > 120 ? detail::infinity<float> : t < -120 ? 0 : float(product);
    return detail::with_sign(power, x, y);
  }
}

// Computed in pairs of doubles. As in exp, the two factors of 2^n allow gradual underflow.
WEFT_HD inline double pow(double x, double y) {
  if constexpr (on_device) {
    return ::pow(x, y);
  } else {
    const double size = std::fabs(x), infinity = detail::infinity<double>;
    const detail::DoubleDouble finite_log = detail::precise_log(size);
    const double log = size == 0 ? -infinity : size < infinity ? finite_log.high : size;
    const bool is_one = y == 0 || size == 1;
    const double t = is_one ? 0 : y * log;
    const double low = is_one ? 0 : std::fma(y, finite_log.low, std::fma(y, log, -t));
    const double finite = detail::precise_exp({t, low});
    const double power = t > 710 ? infinity : t < -746 ? 0 : finite;
    return detail::with_sign(power, x, y);
  }
}

}  // namespace weft::maths
