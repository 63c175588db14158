// The elementary functions against double (float) and long double (double) libraries, and the row kernels against plain
// double loops.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "engine/backends/cpu/rows.h"
#include "engine/maths.h"

using namespace weft;

namespace {

constexpr float inf = std::numeric_limits<float>::infinity();
constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

// |y - exact| in units of the last place that T has at `exact`; enormous where only one of them is NaN or infinite.
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

// Every 2^32 / count-th float, all exponents and signs alike, up to |x| <= limit.
template <class F, class Exact> Worst sweep(F f, Exact exact, float limit = inf, uint32_t count = 400'000) {
  std::vector<float> x, y;
  for (uint32_t i = 0; i < count; ++i) {
    const float candidate = __builtin_bit_cast(float, uint32_t(uint64_t(i) * 0xffffffffu / count));
    if (!(std::fabs(candidate) > limit)) x.push_back(candidate);
  }
  y.resize(x.size());
  for (size_t i = 0; i < x.size(); ++i) y[i] = f(x[i]);  // a loop of its own, so that the vectorised code is tested
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

// Equal, counting NaN as equal to NaN and -0 as different from 0.
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

TEST_CASE("float functions are within their stated error over all exponents") {
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
}

TEST_CASE("zeros, infinities, NaN and the ends of the range are exact") {
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

TEST_CASE("pow follows IEEE 754 at every edge") {
  const std::vector<float> edges = {0.0f,    -0.0f, 1,    -1,    2,           -2,         0.5f,         -0.5f,
                                    3,       -3,    2.5f, -2.5f, inf,         -inf,       not_a_number, 1e-45f,
                                    -1e-45f, 1e38f, 100,  -101,  16777217.0f, -8388607.0f};
  for (const float x : edges)
    for (const float y : edges) {
      INFO("pow(" << x << ", " << y << ") = " << maths::pow(x, y));
      REQUIRE(ulps(maths::pow(x, y), std::pow(double(x), double(y))) <= 0.6);
      REQUIRE((std::isnan(maths::pow(x, y)) || std::signbit(maths::pow(x, y)) == std::signbit(std::pow(x, y))));
    }
}

TEST_CASE("functions do not step back where their pieces meet") {
  require_monotone(0.34657f, 0.3466f, [](float x) { return maths::exp(x); });
  require_monotone(-87.3370f, -87.336f, [](float x) { return maths::exp(x); });  // into the subnormals
  require_monotone(1.3333f, 1.33334f, [](float x) { return maths::log(x); });
  require_monotone(9.999f, 10.0001f, [](float x) { return maths::tanh(x); });
  require_monotone(0.9277f, 0.9278f, [](float x) { return maths::erf(x); });
}

namespace {

using Row = std::vector<double>;

template <class T> std::vector<T> samples(size_t count, unsigned seed) {
  std::vector<T> values(count);
  for (T& v : values) v = T(int((seed = seed * 1664525u + 1013904223u) >> 8) % 20001 - 10000) / T(2000);
  return values;
}

double total(const Row& r) {
  double s = 0;
  for (const double v : r) s += v;
  return s;
}

template <class F> Row map(size_t n, F f) {
  Row r(n);
  for (size_t i = 0; i < n; ++i) r[i] = f(i);
  return r;
}

template <class T> void require_close(const T* y, const Row& expected, const std::string& what) {
  const double tolerance = 41 * std::numeric_limits<T>::epsilon();
  for (size_t i = 0; i < expected.size(); ++i) {
    INFO(what << "[" << i << "] of " << expected.size() << ": " << y[i] << ", not " << expected[i]);
    REQUIRE(std::fabs(y[i] - expected[i]) <= tolerance * std::max(1.0, std::fabs(expected[i])));
  }
}

template <class T> void check_rows(int64_t rows, int64_t n) {
  const auto x = samples<T>(rows * n, 1), g = samples<T>(rows * n, 2);
  std::vector<T> soft(rows * n), soft_dx(soft), log_soft(soft), log_dx(soft), norm(soft), norm_dx(soft);
  std::vector<T> lse(rows), rstd(rows);
  cpu::softmax(rows, n, x.data(), soft.data());
  cpu::softmax_pullback(rows, n, soft.data(), g.data(), soft_dx.data());
  cpu::log_softmax(rows, n, x.data(), log_soft.data());
  cpu::log_softmax_pullback(rows, n, log_soft.data(), g.data(), log_dx.data());
  cpu::logsumexp(rows, n, x.data(), lse.data());
  cpu::standardize(rows, n, T(1e-3), x.data(), norm.data(), rstd.data());
  cpu::standardize_pullback(rows, n, norm.data(), rstd.data(), g.data(), norm_dx.data());

  for (int64_t r = 0; r < rows; ++r) {
    const T *xr = x.data() + r * n, *gr = g.data() + r * n;
    const auto at = [&](const std::vector<T>& v) { return v.data() + r * n; };
    const double log_sum = std::log(total(map(n, [&](size_t i) { return std::exp(double(xr[i])); })));
    const Row p = map(n, [&](size_t i) { return std::exp(xr[i] - log_sum); });
    const double g_sum = total(Row(gr, gr + n)), g_p = total(map(n, [&](size_t i) { return gr[i] * p[i]; }));
    require_close(at(soft), p, "softmax");
    require_close(at(soft_dx), map(n, [&](size_t i) { return p[i] * (gr[i] - g_p); }), "softmax_pullback");
    require_close(at(log_soft), map(n, [&](size_t i) { return xr[i] - log_sum; }), "log_softmax");
    require_close(at(log_dx), map(n, [&](size_t i) { return gr[i] - p[i] * g_sum; }), "log_softmax_pullback");
    if (n > 0) require_close(&lse[r], {log_sum}, "logsumexp");

    const double count = std::max<double>(n, 1), m = total(Row(xr, xr + n)) / count;
    const double variance = total(map(n, [&](size_t i) { return (xr[i] - m) * (xr[i] - m); })) / count;
    const double scale = 1 / std::sqrt(variance + double(T(1e-3)));
    const Row y = map(n, [&](size_t i) { return (xr[i] - m) * scale; });
    const double g_y = total(map(n, [&](size_t i) { return gr[i] * y[i]; })) / count;
    require_close(&rstd[r], {scale}, "rstd");
    require_close(at(norm), y, "standardize");
    require_close(at(norm_dx), map(n, [&](size_t i) { return scale * (gr[i] - g_sum / count - y[i] * g_y); }),
                  "standardize_pullback");
  }
}

template <class T> T first_of(void (*kernel)(int64_t, int64_t, const T*, T*), std::vector<T> x) {
  std::vector<T> y(x.size() + 1);
  kernel(1, int64_t(x.size()), x.data(), y.data());
  return y[0];
}

}  // namespace

TEST_CASE("row kernels agree with plain loops in double on odd sizes") {
  for (const int64_t n : {0, 1, 3, 16, 17, 63, 130, 1000}) {
    check_rows<float>(3, n);
    check_rows<double>(3, n);
  }
  check_rows<float>(0, 5);
  check_rows<float>(203, 7);
  check_rows<double>(1, 9001);  // summed by halves
}

TEST_CASE("rows of infinities and NaN give what PyTorch gives") {
  for (const int64_t n : {1, 5, 17, 100}) {
    const std::vector<float> low(n, -inf);
    REQUIRE(std::isnan(first_of<float>(cpu::softmax, low)));
    REQUIRE(std::isnan(first_of<float>(cpu::log_softmax, low)));
    REQUIRE(first_of<float>(cpu::logsumexp, low) == -inf);
    for (const int64_t where : {int64_t(0), n / 2, n - 1}) {
      std::vector<float> x(n, 1.0f);
      x[where] = not_a_number;
      for (const auto kernel : {cpu::softmax<float>, cpu::log_softmax<float>, cpu::logsumexp<float>})
        REQUIRE(std::isnan(first_of<float>(kernel, x)));
      x[where] = inf;
      REQUIRE(first_of<float>(cpu::logsumexp, x) == inf);
    }
  }
  REQUIRE(first_of<float>(cpu::logsumexp, {}) == -inf);
  REQUIRE(first_of<float>(cpu::softmax, {-inf, 0}) == 0);
  REQUIRE(first_of<float>(cpu::softmax, {1e38f, -1e38f}) == 1);
}

TEST_CASE("a row's result does not depend on the rows beside it") {
  const int64_t rows = 9, n = 333;
  const auto x = samples<float>(rows * n, 7);
  std::vector<float> together(rows * n), alone(n);
  cpu::softmax(rows, n, x.data(), together.data());
  cpu::softmax(1, n, x.data() + 5 * n, alone.data());
  REQUIRE(std::equal(alone.begin(), alone.end(), together.begin() + 5 * n));
}
