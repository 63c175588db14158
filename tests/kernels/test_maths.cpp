// SPDX-License-Identifier: Apache-2.0
// The elementary functions against libraries in double (for float) and long double (for double).
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "tests/support/catch.h"
#include "weft/engine/maths/maths.h"

using namespace weft;

namespace {

constexpr float inf = std::numeric_limits<float>::infinity();
constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

// |y - exact| in units in the last place of T at `exact`; huge if only one of them is NaN or infinite.
template <class T, class Wide> double ulps(T y, Wide exact) {
  using Limits = std::numeric_limits<T>;
  if (std::isnan(exact) || std::isnan(y)) return std::isnan(exact) && std::isnan(y) ? 0 : 1e30;
  if (std::isinf(T(exact)) || std::isinf(y)) return T(exact) == y ? 0 : 1e30;
  int exponent = 0;
  std::frexp(exact, &exponent);
  const int last = std::max(exponent - Limits::digits, Limits::min_exponent - Limits::digits);
  return double(std::fabs(Wide(y) - exact) / std::ldexp(Wide(1), last));
}

struct Worst {
  double ulp = 0, at = 0;
};

// Every 2^32 / count-th float, evenly over exponents and signs, up to |x| <= limit.
template <class F, class Exact> Worst sweep(F f, Exact exact, float limit = inf, uint32_t count = 400'000) {
  std::vector<float> x, y;
  for (uint32_t i = 0; i < count; ++i) {
    const float candidate = __builtin_bit_cast(float, uint32_t(uint64_t(i) * 0xffffffffu / count));
    if (!(std::fabs(candidate) > limit)) x.push_back(candidate);
  }
  y.resize(x.size());
  for (size_t i = 0; i < x.size(); ++i) y[i] = f(x[i]);  // a separate loop, so that the vectorised code is tested
  Worst worst;
  for (size_t i = 0; i < x.size(); ++i)
    if (const double u = ulps(y[i], exact(double(x[i]))); u > worst.ulp) worst = {u, x[i]};
  return worst;
}

template <class F, class Exact> Worst sweep_between(double low, double high, F f, Exact exact, int count = 50'000) {
  std::vector<double> x(count), y(count);
  for (int i = 0; i < count; ++i) x[i] = low + (high - low) * (i + 0.3) / count;
  for (int i = 0; i < count; ++i) y[i] = f(x[i]);
  Worst worst;
  for (int i = 0; i < count; ++i)
    if (const double u = ulps(y[i], exact((long double)(x[i]))); u > worst.ulp) worst = {u, x[i]};
  return worst;
}

void require_within(double bound, Worst worst, const std::string& what) {
  INFO(what << ": " << worst.ulp << " ulp at " << worst.at);
  REQUIRE(worst.ulp <= bound);
}

#define WEFT_COMPARE(name) [](auto x) { return maths::name(x); }, [](auto x) { return std::name(x); }

// Equality in which NaN equals NaN and -0 differs from 0.
bool same(double a, double b) { return std::isnan(a) ? std::isnan(b) : a == b && std::signbit(a) == std::signbit(b); }

template <class F, class Exact> void require_same(std::vector<float> xs, F f, Exact exact) {
  for (const float x : xs) {
    INFO("x = " << x << ": " << f(x) << ", not " << exact(x));
    REQUIRE(same(f(x), exact(x)));
  }
  for (const double x : std::vector<double>(xs.begin(), xs.end())) {
    INFO("x = " << x << " in double: " << f(x) << ", not " << exact(x));
    REQUIRE(same(f(x), exact(x)));
  }
}

template <class F> void require_monotone(float low, float high, F f) {
  float last = f(low);
  for (float x = low; x < high; x = std::nextafter(x, high)) {
    INFO("x = " << x);
    REQUIRE(last <= f(x));
    last = f(x);
  }
}

}  // namespace

TEST_CASE("float functions are within their stated error for all exponents") {
  require_within(1.1, sweep(WEFT_COMPARE(exp)), "exp");
  require_within(1.7, sweep(WEFT_COMPARE(expm1)), "expm1");
  require_within(1.1, sweep(WEFT_COMPARE(log)), "log");
  require_within(1.7, sweep(WEFT_COMPARE(log1p)), "log1p");
  require_within(2.0, sweep(WEFT_COMPARE(tanh)), "tanh");
  require_within(1.1, sweep(WEFT_COMPARE(erf)), "erf");
  require_within(1.7, sweep(WEFT_COMPARE(sin), 0x1p40f), "sin");
  require_within(1.7, sweep(WEFT_COMPARE(cos), 0x1p40f), "cos");
  require_within(0.6, sweep([](float x) { return maths::pow(x, 1.7f); }, [](double x) { return std::pow(x, 1.7f); }),
                 "pow(x, 1.7)");
  require_within(0.6, sweep([](float y) { return maths::pow(0.3f, y); }, [](double y) { return std::pow(0.3f, y); }),
                 "pow(0.3, y)");
}

TEST_CASE("double functions are within their stated error") {
  const double subnormal = 0x1p-1030;
  require_within(1.2, sweep_between(-745, 709.7, WEFT_COMPARE(exp)), "exp");
  require_within(2.0, sweep_between(-2, 2, WEFT_COMPARE(expm1)), "expm1");
  require_within(2.0, sweep_between(-50, 709.7, WEFT_COMPARE(expm1)), "expm1, wide");
  require_within(1.2, sweep_between(0.4, 2.5, WEFT_COMPARE(log)), "log");
  require_within(1.2, sweep_between(0, 1e300, WEFT_COMPARE(log)), "log, wide");
  require_within(1.2, sweep_between(0, subnormal, WEFT_COMPARE(log)), "log, subnormal");
  require_within(2.0, sweep_between(-1, 2, WEFT_COMPARE(log1p)), "log1p");
  require_within(2.0, sweep_between(-1e-5, 1e-5, WEFT_COMPARE(log1p)), "log1p near 0");
  require_within(2.1, sweep_between(-21, 21, WEFT_COMPARE(tanh)), "tanh");
  require_within(2.1, sweep_between(-0.3, 0.3, WEFT_COMPARE(tanh)), "tanh near 0");
  require_within(1.1, sweep_between(-7, 7, WEFT_COMPARE(erf)), "erf");
  require_within(1.1, sweep_between(0.85, 1.1, WEFT_COMPARE(erf)), "erf where its pieces meet");
  require_within(1.1, sweep_between(-1e-300, 1e-300, WEFT_COMPARE(erf)), "erf near 0");
  for (const double widest : {1e-3, 10.0, 0x1p30, 0x1p40}) {
    require_within(0.9, sweep_between(-widest, widest, WEFT_COMPARE(sin)), "sin");
    require_within(0.9, sweep_between(-widest, widest, WEFT_COMPARE(cos)), "cos");
  }
}

TEST_CASE("sin and cos in double are accurate where all leading digits cancel") {
  const auto check = [](double x) {
    INFO("x = " << x << ": " << maths::sin(x) << ", " << maths::cos(x));
    REQUIRE(ulps(maths::sin(x), std::sin(static_cast<long double>(x))) <= 0.9);
    REQUIRE(ulps(maths::cos(x), std::cos(static_cast<long double>(x))) <= 0.9);
  };
  const double half_pi = 0x1.921fb54442d18p+0;
  for (double n = 1; n < 0x1p39; n = std::floor(n * 1.01 + 1)) {
    const double near = n * half_pi;
    for (const double x : {near, std::nextafter(near, 0), std::nextafter(near, 2 * near)}) check(x), check(-x);
  }
  REQUIRE(maths::sin(2 * half_pi) == 0x1.1a62633145c07p-53);  // the part of pi beyond double
  REQUIRE(maths::cos(half_pi) == 0x1.1a62633145c07p-54);
  REQUIRE(std::isnan(maths::sin(0x1p40)));
  REQUIRE(std::isnan(maths::cos(-0x1p40)));
}

TEST_CASE("pow in double is within its stated error for results of any size") {
  const auto power = [](auto x, auto y) {
    if constexpr (std::is_same_v<decltype(x), double>) return maths::pow(x, double(y));
    return std::pow(x, y);
  };
  for (const double y : {1.7, -0.3, 2.0, -11.0})
    require_within(0.85,
                   sweep_between(
                       0, 1e20, [&](auto x) { return power(x, decltype(x)(y)); },
                       [&](auto x) { return power(x, decltype(x)(y)); }),
                   "pow of x");
  // For small |log x|, y multiplies its error; its polynomial is at its worst at 4/3.
  for (const double x :
       {0.3, 0.6667, 0.68, 0.99999, 1 + 0x1p-52, 1 + 0x1p-30, 1.3333, 1.34, 1.35, 2.0, 1e300, 1e-310}) {
    const double least = -745.2 / std::log(x), most = 709.79 / std::log(x);
    require_within(0.9,
                   sweep_between(
                       std::min(least, most), std::max(least, most), [&](double y) { return maths::pow(x, y); },
                       [&](long double y) { return std::pow(static_cast<long double>(x), y); }),
                   "pow(" + std::to_string(x) + ", y)");
  }
  for (int exponent = -1074; exponent <= 1023; ++exponent)
    REQUIRE(maths::pow(2.0, exponent) == std::ldexp(1, exponent));
  for (double x = -9; x <= 9; ++x) {  // exact as far as double can represent it
    double exact = 1;
    for (int exponent = 0; exponent <= 16; ++exponent, exact *= x) REQUIRE(maths::pow(x, exponent) == exact);
  }
}

TEST_CASE("zeros, infinities, NaN and the range limits are exact") {
  require_same({0, -0.0f, inf, -inf, not_a_number, -800, 800}, WEFT_COMPARE(exp));
  require_same({0.0f, -0.0f, inf, -inf, not_a_number, -1e3f, 1e3f}, WEFT_COMPARE(expm1));
  require_same({0.0f, -0.0f, 1, -1, inf, -inf, not_a_number, -1e-40f}, WEFT_COMPARE(log));
  require_same({0.0f, -0.0f, -1, -2, inf, -inf, not_a_number}, WEFT_COMPARE(log1p));
  require_same({0.0f, -0.0f, inf, -inf, not_a_number, 25, -25}, WEFT_COMPARE(tanh));
  require_same({0.0f, -0.0f, inf, -inf, not_a_number, 7, -7}, WEFT_COMPARE(erf));
  require_same({0.0f, -0.0f, inf, not_a_number}, WEFT_COMPARE(sin));
  require_same({0.0f, -0.0f, -inf, not_a_number}, WEFT_COMPARE(cos));
  REQUIRE(maths::exp(-103.9f) == 0x1p-149f);
  REQUIRE(maths::sigmoid(-inf) == 0);
  REQUIRE(ulps(maths::sigmoid(-87.0f), 1 / (1 + std::exp(87.0))) <= 2);
  REQUIRE(maths::sigmoid(inf) == 1);
  REQUIRE(maths::rsqrt(0.25f) == 2);
}

TEST_CASE("pow follows IEEE 754 in every special case") {
  const auto check = [](auto... edges) {
    using T = std::common_type_t<decltype(edges)...>;
    using Wide = std::conditional_t<std::is_same_v<T, float>, double, long double>;
    for (const T x : {edges...})
      for (const T y : {edges...}) {
        INFO("pow(" << x << ", " << y << ") = " << maths::pow(x, y));
        REQUIRE(ulps(maths::pow(x, y), std::pow(Wide(x), Wide(y))) <= 0.6);
        REQUIRE((std::isnan(maths::pow(x, y)) || std::signbit(maths::pow(x, y)) == std::signbit(std::pow(x, y))));
      }
  };
  check(0.0f, -0.0f, 1.0f, -1.0f, 2.0f, -2.0f, 0.5f, -0.5f, 3.0f, -3.0f, 2.5f, -2.5f, inf, -inf, not_a_number, 1e-45f,
        -1e-45f, 1e38f, 100.0f, -101.0f, 16777217.0f, -8388607.0f);
  check(0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5, 3.0, -3.0, 2.5, -2.5, double(inf), -double(inf),
        double(not_a_number), 5e-324, -5e-324, 1e308, 100.0, -101.0, 9007199254740993.0, -4503599627370495.0);
}

namespace {

// A hash of all bits of f at 4096 arguments: every other one has random bits, the rest are within 256 of 0.
template <class T, class F> uint32_t hash_of(F f) {
  using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
  std::vector<T> x(4096), y(x.size());
  uint64_t state = 1;
  for (size_t i = 0; i < x.size(); ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    x[i] = i % 2 ? __builtin_bit_cast(T, Bits(state >> (64 - 8 * sizeof(T)))) : T(int64_t(state) >> 24) * T(0x1p-31);
  }
  for (size_t i = 0; i < x.size(); ++i) y[i] = f(x[i]);
  const volatile T* one_by_one = x.data();  // volatile, so that no compiler vectorises it
  uint64_t hash = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    REQUIRE(same(y[i], f(T(one_by_one[i]))));
    hash = (hash ^ (std::isnan(y[i]) ? 1 : __builtin_bit_cast(Bits, y[i]))) * 0x100000001b3u;
    hash ^= hash >> 32;
  }
  return uint32_t(hash);
}

}  // namespace

// The hashes are those of the first machine that computed them; every other machine must reproduce them.
TEST_CASE("every function has the same bits on every CPU and with every compiler, vectorised or scalar") {
  const auto check = [](const std::string& name, uint32_t in_float, uint32_t in_double, auto f) {
    INFO(name);
    CHECK(hash_of<float>(f) == in_float);
    CHECK(hash_of<double>(f) == in_double);
  };
  check("exp", 0x46909def, 0xdf22c4f2, [](auto x) { return maths::exp(x); });
  check("expm1", 0xebf18753, 0x30f2cbff, [](auto x) { return maths::expm1(x); });
  check("log", 0xa5c43494, 0xb12f9f4e, [](auto x) { return maths::log(x); });
  check("log1p", 0xfca3fdd9, 0x5dfdb637, [](auto x) { return maths::log1p(x); });
  check("tanh", 0xd61d6fbd, 0x4f743c6b, [](auto x) { return maths::tanh(x); });
  check("sigmoid", 0xe55873c5, 0x8bb04c42, [](auto x) { return maths::sigmoid(x); });
  check("erf", 0x7574ec35, 0xb9fd0db9, [](auto x) { return maths::erf(x); });
  check("sin", 0x12703853, 0x29dee275, [](auto x) { return maths::sin(x); });
  check("cos", 0x35bf77dd, 0x9351d732, [](auto x) { return maths::cos(x); });
  check("cube", 0xa0d6a63f, 0x687ba0f7, [](auto x) { return maths::pow(x, 3); });
  check("any power", 0xa6db7aff, 0xef82e22c, [](auto x) { return maths::pow(std::fabs(x), x / 64); });
}

TEST_CASE("log1p_of_fraction equals log1p bit by bit") {
  const auto same = [](auto x) { REQUIRE(maths::log1p_of_fraction(x) == maths::log1p(x)); };
  for (float x = 1; x > 1e-37f; x *= 0.99999f) same(x);
  for (double x = 1; x > 1e-300; x *= 0.9999) same(x);
  for (float x = 0.33333f; x < 0.33334f; x = std::nextafter(x, 1.0f)) same(x);  // where its pieces meet
  for (double x = 1 / 3.0 - 1e-13; x < 1 / 3.0 + 1e-13; x = std::nextafter(x, 1.0)) same(x);
  same(0.0f);
  same(0.0);
  CHECK(std::isnan(maths::log1p_of_fraction(NAN)));
}

TEST_CASE("functions stay monotone where their pieces meet") {
  require_monotone(0.34657f, 0.3466f, [](float x) { return maths::exp(x); });
  require_monotone(-87.3370f, -87.336f, [](float x) { return maths::exp(x); });  // into the subnormals
  require_monotone(1.3333f, 1.33334f, [](float x) { return maths::log(x); });
  require_monotone(9.999f, 10.0001f, [](float x) { return maths::tanh(x); });
  require_monotone(0.9277f, 0.9278f, [](float x) { return maths::erf(x); });
}
