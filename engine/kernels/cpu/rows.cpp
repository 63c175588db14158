// SPDX-License-Identifier: Apache-2.0
#include "weft/engine/kernels/cpu/rows.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "weft/engine/kernels/cpu/row_fold.h"
#include "weft/engine/kernels/cpu/widen.h"
#include "weft/engine/kernels/scalar_ops.h"

namespace weft::cpu {
namespace {

constexpr int64_t leaf_length = 4096;  // longer rows are summed by halves, so errors grow with log n

template <class T, class... F> T sum_range(int64_t begin, int64_t end, F... f) {
  if (end - begin > leaf_length) {
    const int64_t middle = begin + (end - begin + 2 * leaf_length - 1) / (2 * leaf_length) * leaf_length;
    return sum_range<T>(begin, middle, f...) + sum_range<T>(middle, end, f...);
  }
  return folded_sum<T>(begin, end, f...);
}

// The sum of f(at), or of the products of two.
template <class T, class... F> [[gnu::always_inline]] inline T sum_of(int64_t n, F... f) {
  return n <= leaf_length ? folded_sum<T>(0, n, f...) : sum_range<T>(0, n, f...);  // g++ inlines only the first
}

// The elements of x, to be summed.
template <class T> auto elements(const T* x) {
  return [x](auto at) { return at(x); };
}

// The greatest element that is not NaN, -inf if there is none.
template <class T> T greatest(int64_t n, const T* x) {
  const auto greater = [](auto a, auto b) { return b > a ? b : a; };
  return fold(
      0, n, T(-INFINITY), [=](auto result, auto at) { return greater(result, at(x)); }, greater);
}

// sum(e^(x - shift)).
template <class T> T sum_exp(int64_t n, const T* __restrict x, T shift) {
  T e[leaf_length / 4], sum = 0;
  for (int64_t begin = 0; begin < n; begin += leaf_length / 4) {
    const int64_t count = std::min(n - begin, leaf_length / 4);
    for (int64_t i = 0; i < count; ++i) e[i] = maths::exp(x[begin + i] - shift);
    sum += sum_of<T>(count, elements(e));
  }
  return sum;
}

// A kernel processes this many rows together, because the steps of one row wait for each other. The rows fit into L1.
constexpr int64_t max_together = 16;
int64_t together(int64_t n) { return std::clamp<int64_t>(2048 / std::max<int64_t>(n, 1), 4, max_together); }

template <class T> void find_moments(int64_t rows, int64_t n, T epsilon, const T* x, Moments<T>* moments) {
  const T share = 1 / T(std::max<int64_t>(n, 1));
  for (int64_t r = 0; r < rows; ++r) moments[r].mean = share * sum_of<T>(n, elements(x + r * n));
  for (int64_t r = 0; r < rows; ++r) {
    const auto centered = [row = x + r * n, mean = moments[r].mean](auto at) { return at(row) - mean; };
    moments[r].rstd = share * sum_of<T>(n, centered, centered);
  }
  for (int64_t r = 0; r < rows; ++r) moments[r].rstd = maths::rsqrt(moments[r].rstd + epsilon);
}

// The pullback of layer_norm for a few rows.
template <class T> struct FewRows {
  int64_t rows, n;
  const T *x, *gamma;
  const T* slopes;  // the cotangents before the relu
  const Moments<T>* moments;

  auto centered(int64_t row) const {
    return [x = x + row * n, mean = moments[row].mean](auto at) { return at(x) - mean; };
  }
  auto normalized(int64_t row) const {
    return [centered = centered(row), rstd = moments[row].rstd](auto at) { return centered(at) * rstd; };
  }

  // Nothing of y is below `least`.
  void scale_and_shift(const T* beta, T least, T* y) const {
    for (int64_t r = 0; r < rows; ++r)
      for_all<T>(n, [beta, gamma = gamma, least, to = y + r * n, normalized = normalized(r)](auto at) {
        const auto result = fused_multiply_add(normalized(at), at(gamma), at(beta));
        at.put(result < at(least) ? at(least) : result, to);
      });
  }
  void sum_over_rows(T* dgamma, T* dbeta) const {
    for_all<T>(n, [&](auto at) {
      decltype(at(gamma)) by_gamma = {}, by_beta = {};
      for (int64_t r = 0; r < rows; ++r) {
        const auto slope = at(slopes + r * n);
        by_gamma = fused_multiply_add(slope, normalized(r)(at), by_gamma);
        by_beta += slope;
      }
      at.put(by_gamma, dgamma);
      at.put(by_beta, dbeta);
    });
  }
  // As the pullback of standardize, with rstd taken out of y and so out of the loops.
  void pull_back(T* dx) const {
    T along_one[max_together], along_x[max_together];
    const T share = 1 / T(n);
    for (int64_t r = 0; r < rows; ++r) {
      const T* const slope = slopes + r * n;
      const auto scaled = [slope, gamma = gamma](auto at) { return at(slope) * at(gamma); };
      const T rstd = moments[r].rstd;
      along_one[r] = share * sum_of<T>(n, elements(slope), elements(gamma));
      along_x[r] = rstd * (share * (rstd * sum_of<T>(n, scaled, centered(r))));
    }
    for (int64_t r = 0; r < rows; ++r)
      for_all<T>(n, [slope = slopes + r * n, gamma = gamma, centered = centered(r), one = along_one[r],
                     along = along_x[r], rstd = moments[r].rstd, to = dx + r * n](auto at) {
        const auto off_one = fused_multiply_add(at(slope), at(gamma), at(-one));
        at.put(rstd * fused_multiply_add(centered(at), at(-along), off_one), to);
      });
  }
};

// The same for many rows. `slopes` has room for the slopes of max_together rows.
template <class T> struct ManyRows {
  int64_t n;
  const T *x, *gamma, *rectified;
  const Moments<T>* moments;
  const T* g;
  T *dx, *slopes;

  void before_relu(int64_t count, const T* __restrict y, const T* __restrict from) const {
    for (int64_t i = 0; i < count; ++i) slopes[i] = Relu{}.df(y[i]) * from[i];
  }
  // For the rows [begin, end). `sums` gets their 2 n sums, and has room after them for the sums of parts.
  void pull_back(int64_t begin, int64_t end, T* sums) const {
    const int64_t width = 2 * n, few = together(n), first = begin * n, count = (end - begin) * n;
    if (end - begin > few) {
      const int64_t middle = begin + (end - begin + 2 * few - 1) / (2 * few) * few;
      pull_back(begin, middle, sums);
      pull_back(middle, end, sums + width);
      for (int64_t i = 0; i < width; ++i) sums[i] += sums[width + i];
      return;
    }
    if (rectified) before_relu(count, rectified + first, g + first);
    const FewRows<T> rows{end - begin, n, x + first, gamma, rectified ? slopes : g + first, moments + begin};
    rows.pull_back(dx + first);
    rows.sum_over_rows(sums, sums + n);
  }
};

}  // namespace

template <class T> void softmax(int64_t rows, int64_t n, const T* __restrict x, T* __restrict y) {
  for (; rows > 0; --rows, x += n, y += n) {
    const T shift = greatest(n, x);
    for (int64_t i = 0; i < n; ++i) y[i] = maths::exp(x[i] - shift);
    const T scale = 1 / sum_of<T>(n, elements(y));
    for (int64_t i = 0; i < n; ++i) y[i] *= scale;
  }
}

template <class T>
void softmax_pullback(int64_t rows, int64_t n, const T* __restrict y, const T* __restrict g, T* __restrict dx) {
  for (; rows > 0; --rows, y += n, g += n, dx += n) {
    const T dot = sum_of<T>(n, elements(g), elements(y));
    for (int64_t i = 0; i < n; ++i) dx[i] = y[i] * (g[i] - dot);
  }
}

template <class T> void log_softmax(int64_t rows, int64_t n, const T* __restrict x, T* __restrict y) {
  for (; rows > 0; --rows, x += n, y += n) {
    const T shift = greatest(n, x), log_sum = maths::log(sum_exp(n, x, shift));
    for (int64_t i = 0; i < n; ++i) y[i] = (x[i] - shift) - log_sum;
  }
}

template <class T>
void log_softmax_pullback(int64_t rows, int64_t n, const T* __restrict y, const T* __restrict g, T* __restrict dx) {
  for (; rows > 0; --rows, y += n, g += n, dx += n) {
    const T total = sum_of<T>(n, elements(g));
    for (int64_t i = 0; i < n; ++i) dx[i] = g[i] - maths::exp(y[i]) * total;
  }
}

template <class T> void logsumexp(int64_t rows, int64_t n, const T* __restrict x, T* __restrict y) {
  for (; rows > 0; --rows, x += n, ++y) {
    const T maximum = greatest(n, x), shift = std::isfinite(maximum) ? maximum : 0;  // inf - inf would be NaN
    *y = shift + maths::log(sum_exp(n, x, shift));
  }
}

template <class T>
void standardize(int64_t rows, int64_t n, T epsilon, const T* __restrict x, T* __restrict y, T* __restrict rstd) {
  Moments<T> moments[max_together];
  for (int64_t begin = 0, few = together(n); begin < rows; begin += few) {
    const int64_t end = std::min(begin + few, rows);
    find_moments(end - begin, n, epsilon, x + begin * n, moments);
    for (int64_t r = begin; r < end; ++r) {
      const auto [mean, scale] = moments[r - begin];
      for (int64_t i = r * n; i < (r + 1) * n; ++i) y[i] = (x[i] - mean) * scale;
      rstd[r] = scale;
    }
  }
}

// With y = (x - mean) rstd: dx = rstd (g - mean(g) - y mean(g y)).
template <class T>
void standardize_pullback(int64_t rows, int64_t n, const T* __restrict y, const T* __restrict rstd,
                          const T* __restrict g, T* __restrict dx) {
  const T share = 1 / T(std::max<int64_t>(n, 1));
  for (; rows > 0; --rows, y += n, g += n, dx += n, ++rstd) {
    const T scale = *rstd, along_one = share * sum_of<T>(n, elements(g));
    const T along_y = share * sum_of<T>(n, elements(g), elements(y));
    for (int64_t i = 0; i < n; ++i) dx[i] = scale * (g[i] - along_one - y[i] * along_y);
  }
}

template <class T>
void layer_norm(int64_t rows, int64_t n, T epsilon, bool relu, const T* x, const T* gamma, const T* beta, T* y,
                Moments<T>* moments) {
  for (int64_t begin = 0, few = together(n); begin < rows; begin += few) {
    const int64_t end = std::min(begin + few, rows);
    find_moments(end - begin, n, epsilon, x + begin * n, moments + begin);
    const FewRows<T> few_rows{end - begin, n, x + begin * n, gamma, nullptr, moments + begin};
    few_rows.scale_and_shift(beta, relu ? T(0) : T(-INFINITY), y + begin * n);
  }
}

template <class T>
void layer_norm_pullback(int64_t rows, int64_t n, const T* x, const T* gamma, const T* rectified,
                         const Moments<T>* moments, const T* g, T* dx, T* dgamma, T* dbeta) {
  const int64_t few = together(n), halvings = std::bit_width(static_cast<uint64_t>(rows / few));
  const Temporary<T> memory((2 * (halvings + 1) + few) * n);
  T *slopes = memory, *sums = slopes + few * n;
  ManyRows<T>{n, x, gamma, rectified, moments, g, dx, slopes}.pull_back(0, rows, sums);
  std::copy_n(sums, n, dgamma);
  std::copy_n(sums + n, n, dbeta);
}

#define WEFT_ROWS(T)                                                                                                 \
  template void softmax(int64_t, int64_t, const T*, T*);                                                             \
  template void softmax_pullback(int64_t, int64_t, const T*, const T*, T*);                                          \
  template void log_softmax(int64_t, int64_t, const T*, T*);                                                         \
  template void log_softmax_pullback(int64_t, int64_t, const T*, const T*, T*);                                      \
  template void logsumexp(int64_t, int64_t, const T*, T*);                                                           \
  template void standardize(int64_t, int64_t, T, const T*, T*, T*);                                                  \
  template void standardize_pullback(int64_t, int64_t, const T*, const T*, const T*, T*);                            \
  template void layer_norm(int64_t, int64_t, T, bool, const T*, const T*, const T*, T*, Moments<T>*);                \
  template void layer_norm_pullback(int64_t, int64_t, const T*, const T*, const T*, const Moments<T>*, const T*, T*, \
                                    T*, T*);
WEFT_ROWS(float)
WEFT_ROWS(double)
#undef WEFT_ROWS

}  // namespace weft::cpu
