// SPDX-License-Identifier: Apache-2.0
// The row kernels against plain double loops.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "weft/engine/kernels/cpu/rows.h"

using namespace weft;

namespace {

constexpr float inf = std::numeric_limits<float>::infinity();
constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

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

TEST_CASE("row kernels match plain loops in double on odd sizes") {
  for (const int64_t n : {0, 1, 3, 16, 17, 63, 130, 1000}) {
    check_rows<float>(3, n);
    check_rows<double>(3, n);
  }
  check_rows<float>(0, 5);
  check_rows<float>(203, 7);
  check_rows<double>(1, 9001);  // uses pairwise summation
}

TEST_CASE("rows of infinities and NaN give PyTorch's results") {
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

TEST_CASE("a row's result does not depend on the other rows") {
  const int64_t rows = 9, n = 333;
  const auto x = samples<float>(rows * n, 7);
  std::vector<float> together(rows * n), alone(n);
  cpu::softmax(rows, n, x.data(), together.data());
  cpu::softmax(1, n, x.data() + 5 * n, alone.data());
  REQUIRE(std::equal(alone.begin(), alone.end(), together.begin() + 5 * n));
}
