// SPDX-License-Identifier: Apache-2.0
#pragma once
// The constants of a number type, and functions that the algorithms share.

#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>

#ifdef __CUDACC__
#define WEFT_HD __host__ __device__
#else
#define WEFT_HD
#endif

namespace weft::maths {

#ifdef __CUDA_ARCH__
inline constexpr bool on_device = true;
#else
inline constexpr bool on_device = false;
#endif

// The polynomials are minimax fits, lowest power first: exp_tail approximates (e^r - 1 - r) / r^2 on |r| <= ln2 / 2,
// log_tail (log(1 + f) - f) / f^2 on |f| <= 1/3, both for the smallest relative error of expm1 and log1p themselves.
template <class T> struct Format;

template <> struct Format<float> {
  using Bits = uint32_t;
  static constexpr int mantissa = 23, bias = 127;
  static constexpr float exp_zero = -104, exp_infinite = 88.7228394f;  // e^x is 0 below, infinite above
  static constexpr float expm1_one = 20, tanh_one = 10;                // -expm1(-x) and tanh(x) are 1 above
  static constexpr float log2e = 0x1.715476p+0f, ln2 = 0x1.62e43p-1f, ln2_rest = -0x1.05c61p-29f;
  static constexpr float exp_tail[] = {0.5f, 0.166665316f, 0.041666165f, 0.00836803205f, 0.00139735814f};
  static constexpr float log_tail[] = {-0.5f,        0.333331972f,  -0.249999195f, 0.200114384f, -0.166744158f,
                                       0.139895052f, -0.122742727f, 0.140619367f,  -0.124828532f};
};

template <> struct Format<double> {
  using Bits = uint64_t;
  static constexpr int mantissa = 52, bias = 1023;
  static constexpr double exp_zero = -746, exp_infinite = 709.782712893384;
  static constexpr double expm1_one = 40, tanh_one = 20;
  static constexpr double log2e = 0x1.71547652b82fep+0, ln2 = 0x1.62e42fefa39efp-1, ln2_rest = 0x1.abc9e3b39803fp-56;
  static constexpr double exp_tail[] = {5.0000000000000000e-01, 1.6666666666666677e-01, 4.1666666666666512e-02,
                                        8.3333333333216655e-03, 1.3888888888962492e-03, 1.9841269886038482e-04,
                                        2.4801587172380377e-05, 2.7557244293477974e-06, 2.7557402701352063e-07,
                                        2.5109009470654694e-08, 2.0875336466839935e-09};
  static constexpr double log_tail[] = {
      -0.49999999999999956,  0.33333333333333132,   -0.25000000000029449,  0.20000000000083845,   -0.16666666660892013,
      0.14285714273453395,   -0.12500000514564891,  0.11111112007022432,   -0.099999749367016041, 0.090908713566071525,
      -0.083340633130764147, 0.076932901861202219,  -0.071296200051185699, 0.066503789160924129,  -0.063999723551095039,
      0.06053735744064747,   -0.045347603647353227, 0.041675781811697094,  -0.086951162388888517, 0.085130462070824156};
};

namespace detail {

template <class T> using Bits = typename Format<T>::Bits;
template <class T> inline constexpr T infinity = std::numeric_limits<T>::infinity();
template <class T> inline constexpr T nan = std::numeric_limits<T>::quiet_NaN();

template <class T> WEFT_HD constexpr Bits<T> bits(T x) { return __builtin_bit_cast(Bits<T>, x); }
template <class T> WEFT_HD inline T from_bits(Bits<T> i) { return __builtin_bit_cast(T, i); }

// c[0] + c[1] x + c[2] x^2 + ..., by Horner's rule in x^2 over the pairs c[i] + c[i + 1] x. It takes as many operations
// as Horner's rule in x, but the chain of dependent operations is half as long.
template <std::size_t I = 0, class T, std::size_t N> WEFT_HD inline T polynomial(const T (&c)[N], T x, T x2) {
  if constexpr (I + 1 == N) {
    return c[I];
  } else {
    const T pair = std::fma(x, c[I + 1], c[I]);
    if constexpr (I + 2 == N)
      return pair;
    else
      return std::fma(x2, polynomial<I + 2>(c, x, x2), pair);
  }
}

// The number whose exponent field is the low bits of i: 2^(i - bias).
template <class T> WEFT_HD inline T power_of_two(Bits<T> i) { return from_bits<T>(i << Format<T>::mantissa); }

// Adding 1.5 * 2^mantissa + excess rounds to an integer and leaves that integer + excess in the low bits.
template <class T, int excess>
inline constexpr T rounder = T(3) * T(int64_t(1) << (Format<T>::mantissa - 1)) + T(excess);

}  // namespace detail

}  // namespace weft::maths
