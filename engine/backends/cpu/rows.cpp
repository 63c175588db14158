#include "engine/backends/cpu/rows.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "engine/backends/cpu/simd.h"
#include "engine/maths.h"

namespace weft::cpu {
namespace {

constexpr int64_t leaf = 4096;  // longer rows are summed by halves, so that errors grow with log n

template <class T> constexpr T infinity = std::numeric_limits<T>::infinity();

// What a kernel reads of a row at once: at(x) is a vector of elements x[i...], or at the end of a row just x[i].
template <class T> struct Several {
  int64_t i;
  Vector<T> operator()(const T* x) const { return load(x + i); }
};
template <class T> struct Single {
  int64_t i;
  T operator()(const T* x) const { return x[i]; }
};

// The elements of a vector, combined in halves: each round rotates by half the width of the one before.
template <class T, int width = lanes<T> / 2, class Combine> T across(Vector<T> v, Combine combine) {
  const auto rotated = [&]<int... l>(std::integer_sequence<int, l...>) {
    return __builtin_shufflevector(v, v, (l + width) % lanes<T>...);
  };
  v = combine(v, rotated(std::make_integer_sequence<int, lanes<T>>()));
  if constexpr (width > 1)
    return across<T, width / 2>(v, combine);
  else
    return v[0];
}

// combine over f(at) for every at in a row. Four running vectors hide the latency of `combine`.
template <class T, class Combine, class F> T fold(int64_t begin, int64_t end, T start, Combine combine, F f) {
  constexpr int64_t width = lanes<T>;
  T result = start;
  int64_t i = begin;
  if (end - begin >= width) {
    const Vector<T> nothing = broadcast(start);
    Vector<T> a = nothing, b = nothing, c = nothing, d = nothing;
    for (; i + 4 * width <= end; i += 4 * width) {
      a = combine(a, f(Several<T>{i}));
      b = combine(b, f(Several<T>{i + width}));
      c = combine(c, f(Several<T>{i + 2 * width}));
      d = combine(d, f(Several<T>{i + 3 * width}));
    }
    for (; i + width <= end; i += width) a = combine(a, f(Several<T>{i}));
    result = across<T>(combine(combine(a, b), combine(c, d)), combine);
  }
  for (; i < end; ++i) result = combine(result, f(Single<T>{i}));
  return result;
}

template <class T, class F> T sum_range(int64_t begin, int64_t end, F f) {
  if (end - begin > leaf) {
    const int64_t middle = begin + (end - begin + 2 * leaf - 1) / (2 * leaf) * leaf;
    return sum_range<T>(begin, middle, f) + sum_range<T>(middle, end, f);
  }
  return fold(
      begin, end, T(0), [](auto a, auto b) { return a + b; }, f);
}

template <class T, class F> T sum_of(int64_t n, F f) { return sum_range<T>(0, n, f); }

// The greatest element that is not NaN, -inf if there is none.
template <class T> T greatest(int64_t n, const T* x) {
  return fold(
      0, n, -infinity<T>, [](auto a, auto b) { return b > a ? b : a; }, [x](auto at) { return at(x); });
}

// sum(e^(x - shift)).
template <class T> T sum_exp(int64_t n, const T* __restrict x, T shift) {
  T e[leaf / 4], sum = 0;
  for (int64_t begin = 0; begin < n; begin += leaf / 4) {
    const int64_t count = std::min(n - begin, leaf / 4);
    for (int64_t i = 0; i < count; ++i) e[i] = maths::exp(x[begin + i] - shift);
    sum += sum_of<T>(count, [&e](auto at) { return at(e); });
  }
  return sum;
}

}  // namespace

template <class T> void softmax(int64_t rows, int64_t n, const T* __restrict x, T* __restrict y) {
  for (; rows > 0; --rows, x += n, y += n) {
    const T shift = greatest(n, x);
    for (int64_t i = 0; i < n; ++i) y[i] = maths::exp(x[i] - shift);
    const T scale = 1 / sum_of<T>(n, [y](auto at) { return at(y); });
    for (int64_t i = 0; i < n; ++i) y[i] *= scale;
  }
}

template <class T>
void softmax_pullback(int64_t rows, int64_t n, const T* __restrict y, const T* __restrict g, T* __restrict dx) {
  for (; rows > 0; --rows, y += n, g += n, dx += n) {
    const T dot = sum_of<T>(n, [y, g](auto at) { return at(g) * at(y); });
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
    const T total = sum_of<T>(n, [g](auto at) { return at(g); });
    for (int64_t i = 0; i < n; ++i) dx[i] = g[i] - maths::exp(y[i]) * total;
  }
}

template <class T> void logsumexp(int64_t rows, int64_t n, const T* __restrict x, T* __restrict y) {
  for (; rows > 0; --rows, x += n, ++y) {
    const T most = greatest(n, x), shift = maths::abs(most) < infinity<T> ? most : 0;  // inf - inf would be NaN
    *y = shift + maths::log(sum_exp(n, x, shift));
  }
}

template <class T>
void layer_norm(int64_t rows, int64_t n, T epsilon, const T* __restrict x, T* __restrict y, T* __restrict mean,
                T* __restrict rstd) {
  const T share = 1 / T(std::max<int64_t>(n, 1));
  for (; rows > 0; --rows, x += n, y += n, ++mean, ++rstd) {
    const T m = share * sum_of<T>(n, [x](auto at) { return at(x); });
    const T variance = share * sum_of<T>(n, [x, m](auto at) { return (at(x) - m) * (at(x) - m); });
    const T scale = maths::rsqrt(variance + epsilon);
    for (int64_t i = 0; i < n; ++i) y[i] = (x[i] - m) * scale;
    *mean = m;
    *rstd = scale;
  }
}

// With y = (x - mean) rstd: dx = rstd (g - mean(g) - y mean(g y)).
template <class T>
void layer_norm_pullback(int64_t rows, int64_t n, const T* __restrict y, const T* __restrict rstd,
                         const T* __restrict g, T* __restrict dx) {
  const T share = 1 / T(std::max<int64_t>(n, 1));
  for (; rows > 0; --rows, y += n, g += n, dx += n, ++rstd) {
    const T scale = *rstd, along_one = share * sum_of<T>(n, [g](auto at) { return at(g); });
    const T along_y = share * sum_of<T>(n, [g, y](auto at) { return at(g) * at(y); });
    for (int64_t i = 0; i < n; ++i) dx[i] = scale * (g[i] - along_one - y[i] * along_y);
  }
}

#define WEFT_ROWS(T)                                                            \
  template void softmax(int64_t, int64_t, const T*, T*);                        \
  template void softmax_pullback(int64_t, int64_t, const T*, const T*, T*);     \
  template void log_softmax(int64_t, int64_t, const T*, T*);                    \
  template void log_softmax_pullback(int64_t, int64_t, const T*, const T*, T*); \
  template void logsumexp(int64_t, int64_t, const T*, T*);                      \
  template void layer_norm(int64_t, int64_t, T, const T*, T*, T*, T*);          \
  template void layer_norm_pullback(int64_t, int64_t, const T*, const T*, const T*, T*);
WEFT_ROWS(float)
WEFT_ROWS(double)
#undef WEFT_ROWS

}  // namespace weft::cpu
