#pragma once
// Elementary functions that a plain loop vectorises: no branches, no tables, no calls, only selects, so that
// `for (i) y[i] = maths::exp(x[i])` becomes AVX-512 (or AVX2) code under both g++ and clang. They honour infinities,
// NaN, signed zero and gradual underflow. Every multiply-add is spelled std::fma: a loop's vector body and its scalar
// tail then round alike, and the argument reductions below rely on it. (Without FMA hardware all of it stays right but
// becomes slow; build with at least -march=x86-64-v3.) On a CUDA device the names mean CUDA's own accurate functions.
//
// Largest errors seen, in ulp, of float (every 11th of all arguments) and double (10^7 random ones):
//   exp 1.1 1.0   expm1 1.7 1.9   log 1.0 1.2   log1p 1.6 1.9   tanh 2.0 2.1   erf 1.0   sin, cos 1.6   pow 0.51
// where erf, sin, cos and pow in double are the C library's, which no loop vectorises.

#include <cmath>
#include <concepts>
#include <cstdint>
#include <limits>
#include <utility>

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

// ---------------------------------------------------------------------------------------------- building blocks

// What the generic algorithms must know about a number type. The polynomials are minimax fits, lowest power first:
// exp_tail approximates (e^r - 1 - r) / r^2 on |r| <= ln2 / 2, log_tail (log(1 + f) - f) / f^2 on |f| <= 1/3, both
// for the smallest relative error of expm1 and log1p themselves.
template <class T> struct Format;

template <> struct Format<float> {
  using Bits = uint32_t;
  using Exponent = int32_t;
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
  using Exponent = int64_t;
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

// c[0] + c[1] x + c[2] x^2 + ...: Horner's rule in x^2 over the pairs c[i] + c[i + 1] x, which costs no more operations
// than in x but halves the chain of dependent ones.
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

// x = n ln2 + r with |r| <= ln2 / 2, and e^r - 1. Adding the rounder, 1.5 * 2^mantissa + excess, rounds to an integer
// and leaves n + excess in the low bits. The leading bits of x - n ln2 cancel, so it is exact under FMA. Beside
// a 1, for x <= 0, ln2 as rounded is enough: its error adds less than an ulp times |n| 2^n.
enum class Ln2 { exact, rounded };

template <class T> struct Exponential {
  Bits<T> n_plus_excess;  // and above the low bits those of the rounder
  T expm1_r;
};

template <class T, int excess>
inline constexpr T rounder = T(3) * T(int64_t(1) << (Format<T>::mantissa - 1)) + T(excess);

template <int excess, Ln2 ln2 = Ln2::exact, class T> WEFT_HD inline Exponential<T> exponential(T x) {
  using F = Format<T>;
  const T shifted = std::fma(x, F::log2e, rounder<T, excess>), n = shifted - rounder<T, excess>;
  const T near_r = std::fma(-n, F::ln2, x), r = ln2 == Ln2::exact ? std::fma(-n, F::ln2_rest, near_r) : near_r;
  const T r2 = r * r;
  return {bits(shifted), std::fma(r2, polynomial(F::exp_tail, r, r2), r)};
}

// x = 2^k m with m in [2/3, 4/3), for normal x > 0.
template <class T> WEFT_HD inline typename Format<T>::Exponent exponent(T x) {
  return typename Format<T>::Exponent(bits(x) - bits(T(2) / T(3))) >> Format<T>::mantissa;
}
template <class T> WEFT_HD inline T mantissa(T x, typename Format<T>::Exponent k) {
  return from_bits<T>(bits(x) - (Bits<T>(k) << Format<T>::mantissa));
}

// log(2^k (1 + f)).
template <class T> WEFT_HD inline T logarithm(T k, T f) {
  using F = Format<T>;
  const T f2 = f * f;
  const T log1p_f = std::fma(f2, polynomial(F::log_tail, f, f2), f);
  return std::fma(k, F::ln2, std::fma(k, F::ln2_rest, log1p_f));
}

}  // namespace detail

// ------------------------------------------------------------------------------------------------- the functions

template <std::floating_point T> WEFT_HD inline T abs(T x) { return std::fabs(x); }
template <std::floating_point T> WEFT_HD inline T sqrt(T x) { return std::sqrt(x); }
template <std::floating_point T> WEFT_HD inline T rsqrt(T x) { return T(1) / std::sqrt(x); }

// 2^n in two factors stays in range where e^x is subnormal (it underflows gradually) or about to overflow.
template <std::floating_point T> WEFT_HD inline T exp(T x) {
  if constexpr (on_device) {
    return ::exp(x);
  } else {
    using F = Format<T>;
    const auto [n, expm1_r] = detail::exponential<2 * F::bias>(x);
    T y = (expm1_r + 1) * detail::power_of_two<T>(n >> 1) * detail::power_of_two<T>(n - (n >> 1));
    y = x < F::exp_zero ? 0 : y;
    return x > F::exp_infinite ? detail::infinity<T> : y;
  }
}

// 2^n e^r - 1 = 2^n (e^r - 1) + (2^n - 1), computed halved because 2^n may overflow where the result does not.
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

template <std::floating_point T> WEFT_HD inline T log(T x) {
  if constexpr (on_device) {
    return ::log(x);
  } else {
    using F = Format<T>;
    const bool subnormal = x < std::numeric_limits<T>::min();
    const T normal = subnormal ? x * T(int64_t(1) << F::mantissa) : x;
    const auto k = detail::exponent(normal);
    T y = detail::logarithm(T(subnormal ? k - F::mantissa : k), detail::mantissa(normal, k) - 1);
    y = x < detail::infinity<T> ? y : x;
    y = x == 0 ? -detail::infinity<T> : y;
    return x < 0 ? detail::nan<T> : y;
  }
}

// 1 + x only chooses k; 2^-k (1 + x) - 1 is then rounded once from the exact x.
template <std::floating_point T> WEFT_HD inline T log1p(T x) {
  if constexpr (on_device) {
    return ::log1p(x);
  } else {
    const auto k = detail::exponent(1 + x);
    const T scale = T(0.25) * detail::power_of_two<T>(Format<T>::bias + 2 - detail::Bits<T>(k));  // 2^-k, or subnormal
    T y = std::copysign(detail::logarithm(T(k), std::fma(scale, x, scale - 1)), x);
    y = x < detail::infinity<T> ? y : x;
    y = x == -1 ? -detail::infinity<T> : y;
    return x < -1 ? detail::nan<T> : y;
  }
}

// tanh |x| = -e / d with e = e^-2|x| - 1 and d = e^-2|x| + 1. Rounding d from the product rather than from e saves half
// an ulp: their errors no longer add up.
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

// Below 0.9 x + x near(x^2), above it 1 - e^-p with p = |x| (1 - far(|x|)), so that nothing cancels.
WEFT_HD inline float erf(float x) {
  if constexpr (on_device) {
    return ::erff(x);
  } else {
    constexpr float near[] = {0.128379151f,  -0.376125038f,  0.112819217f,
                              -0.026770493f, 0.00499895914f, -0.000602080021f};
    constexpr float far[] = {-0.128637075f,   -0.635198057f,   -0.106158979f,   0.0236944836f,
                             -0.00361029431f, 0.000314844947f, -1.04317214e-05f};
    const float t = std::fabs(x), z = x * x, t2 = t * t;
    const auto [n, expm1_r] = detail::exponential<127>(std::fma(t, detail::polynomial(far, t, t2), -t));
    const float scale = detail::power_of_two<float>(n), expm1 = std::fma(scale, expm1_r, scale - 1);
    const float large = t > 4 ? 1 : -expm1, small = std::fma(x, detail::polynomial(near, z, z * z), x);
    return t > 0.9f ? std::copysign(large, x) : small;
  }
}

namespace detail {

// sin(x + quarters pi/2). The reduction runs in double, where two FMAs leave more than float can hold for |x| < 2^40.
// Beyond, where neighbouring floats lie 10^4 periods apart, the result is NaN. sin and cos of the rest |r| <= pi/4 are
// both computed and one is selected.
WEFT_HD inline float sine(float x, uint64_t quarters) {
  constexpr float sin_tail[] = {-0.166666552f, 0.00833219104f, -0.000195186047f};
  constexpr float cos_tail[] = {0.0416666456f, -0.00138873013f, 2.44306702e-05f};
  constexpr double two_over_pi = 0x1.45f306dc9c883p-1, half_pi = 0x1.921fb54442d18p+0, rest = 0x1.1a62633145c07p-54;
  const double wide = std::fabs(x) < 0x1p40f ? x : nan<float>;
  const double shifted = std::fma(wide, two_over_pi, rounder<double, 0>), n = shifted - rounder<double, 0>;
  const float r = float(std::fma(-n, rest, std::fma(-n, half_pi, wide))), z = r * r;
  const auto q = uint32_t(bits(shifted) + quarters);
  const float s = std::copysign(std::fma(r * z, polynomial(sin_tail, z, z * z), r), r);  // for -0
  const float c = std::fma(z * z, polynomial(cos_tail, z, z * z), std::fma(z, -0.5f, 1.0f));
  const float y = q & 1 ? c : s;
  return q & 2 ? -y : y;
}

}  // namespace detail

WEFT_HD inline float sin(float x) {
  if constexpr (on_device) return ::sinf(x);
  return detail::sine(x, 0);
}

WEFT_HD inline float cos(float x) {
  if constexpr (on_device) return ::cosf(x);
  return detail::sine(x, 1);
}

// |x|^y = e^(y log |x|) in double, which also spares every question of range; then what IEEE 754 says of the sign, of
// zero, one and infinity, and of negative x with a broken y.
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
    const int64_t k = detail::exponent(size);
    const double f = detail::mantissa(size, k) - 1, f2 = f * f;
    const double finite_log = std::fma(double(k), ln2, std::fma(f2, detail::polynomial(log_tail, f, f2), f));
    const double log = size == 0 ? -infinity : size < infinity ? finite_log : size;
    const double t = y == 0 || size == 1 ? 0 : y * log;
    const double shifted = std::fma(t, Format<double>::log2e, detail::rounder<double, 1023>);
    const double r = std::fma(-(shifted - detail::rounder<double, 1023>), ln2, t), r2 = r * r;
    const double exp_r = std::fma(r2, detail::polynomial(exp_tail, r, r2), r) + 1;
    const double product = exp_r * detail::power_of_two<double>(detail::bits(shifted));
    const float power = t > 120 ? detail::infinity<float> : t < -120 ? 0 : float(product);
    const bool whole = std::trunc(y) == y, odd = whole && std::trunc(y * 0.5f) * 2 != y;
    const float signed_power = odd ? std::copysign(power, x) : power;
    return x < 0 && size < infinity && !whole ? detail::nan<float> : signed_power;
  }
}

WEFT_HD inline double erf(double x) { return ::erf(x); }
WEFT_HD inline double sin(double x) { return ::sin(x); }
WEFT_HD inline double cos(double x) { return ::cos(x); }
WEFT_HD inline double pow(double x, double y) { return ::pow(x, y); }

}  // namespace weft::maths
