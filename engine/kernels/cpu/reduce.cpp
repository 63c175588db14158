// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>

#include "weft/engine/kernels/cpu/cpu_backend.h"
#include "weft/engine/kernels/cpu/widen.h"
#include "weft/engine/kernels/scalar_ops.h"

namespace weft {
namespace cpu {
namespace {

constexpr int64_t columns_at_once = 512;  // columns that are reduced together
constexpr int64_t leaf_height = 64;       // rows that are reduced in sequence; more are halved, so errors grow slowly
constexpr int64_t full_width = 64;        // narrow rows are reduced side by side up to this width

// sum[j] = the reduction of x[e * stride + j] over e, for extent >= 1 and width <= columns_at_once.
template <class F, class T>
void reduce_columns(F f, int64_t extent, int64_t stride, int64_t width, const T* __restrict x,
                    Compute<T>* __restrict sum) {
  using C = Compute<T>;
  if (extent > leaf_height) {
    const int64_t half = (extent / 2 + leaf_height - 1) / leaf_height * leaf_height;
    C rest[columns_at_once];
    reduce_columns(f, half, stride, width, x, sum);
    reduce_columns(f, extent - half, stride, width, x + half * stride, rest);
    for (int64_t j = 0; j < width; ++j) sum[j] = f(sum[j], rest[j]);
    return;
  }
  for (int64_t j = 0; j < width; ++j) sum[j] = x[j];
  int64_t e = 1;
  for (; e + 4 <= extent; e += 4) {
    const T *a = x + e * stride, *b = a + stride, *c = b + stride, *d = c + stride;
    for (int64_t j = 0; j < width; ++j) sum[j] = f(sum[j], f(f(C(a[j]), C(b[j])), f(C(c[j]), C(d[j]))));
  }
  for (; e < extent; ++e)
    for (int64_t j = 0; j < width; ++j) sum[j] = f(sum[j], C(x[e * stride + j]));
}

// For one outer slice, y[j] = the reduction of x[e * inner + j] over e.
template <class F, class T, class Y> void reduce_slice(F f, int64_t extent, int64_t inner, const T* x, Y* y) {
  Compute<T> sum[columns_at_once];
  if (inner > full_width / 2) {
    for (int64_t j = 0; j < inner; j += columns_at_once) {
      const int64_t width = std::min(columns_at_once, inner - j);
      reduce_columns(f, extent, inner, width, x + j, sum);
      convert<Y>(width, sum, y + j);
    }
    return;
  }
  int64_t side_by_side = std::min(full_width / inner, extent);
  const int64_t width = side_by_side * inner, whole = extent / side_by_side;
  reduce_columns(f, whole, width, width, x, sum);
  for (int64_t j = 0, i = whole * width; i < extent * inner; ++i, ++j) sum[j] = f(sum[j], Compute<T>(x[i]));
  while (side_by_side > 1) {
    const int64_t half = side_by_side / 2, kept = side_by_side - half;
    for (int64_t j = 0; j < half * inner; ++j) sum[j] = f(sum[j], sum[j + kept * inner]);
    side_by_side = kept;
  }
  convert<Y>(inner, sum, y);
}

template <class F, class T, class Y> void reduce_all(F f, const T* x, Along along, Y* y) {
  const auto [outer, extent, inner] = along;
  if (extent == 0) std::fill_n(y, outer * inner, static_cast<Y>(F::template identity<Compute<T>>));
  for (int64_t o = 0; extent * inner > 0 && o < outer; ++o)
    reduce_slice(f, extent, inner, x + o * extent * inner, y + o * inner);
}

// The ops, with the value of an empty reduction. Unlike Maximum and Minimum, Largest and Smallest are nested selects of
// single comparisons, of which g++ can vectorise chains.
template <class T> using Limits = std::numeric_limits<T>;
struct Sum : Add {
  template <class T> static constexpr T identity = 0;
};
struct Product : Multiply {
  template <class T> static constexpr T identity = 1;
};
struct Largest {
  template <class T>
  static constexpr T identity = Limits<T>::has_infinity ? -Limits<T>::infinity() : Limits<T>::lowest();
  template <class T> T operator()(T a, T b) const {
    const T larger = a > b ? a : b;
    return a != a ? a : larger;
  }
};
struct Smallest {
  template <class T> static constexpr T identity = Limits<T>::has_infinity ? Limits<T>::infinity() : Limits<T>::max();
  template <class T> T operator()(T a, T b) const {
    const T smaller = a < b ? a : b;
    return a != a ? a : smaller;
  }
};
template <class F> void with(Reduction op, F&& run) {
  switch (op) {
    case Reduction::sum: return run(Sum{});
    case Reduction::product: return run(Product{});
    case Reduction::maximum: return run(Largest{});
    case Reduction::minimum: return run(Smallest{});
  }
}

// Where x is the extreme y of its line, dx is an equal share of g, elsewhere no part of it.
template <class T> void share_extremes(Along along, const T* x, const T* y, const T* g, T* dx) {
  using C = Compute<T>;
  const int64_t inner = along.inner, size = along.extent * inner;
  const Temporary<C> shares(inner);
  C* const share = shares;
  for (int64_t o = 0; o < along.outer; ++o, x += size, y += inner, g += inner, dx += size) {
    const auto for_each = [&](auto visit) {
      for (int64_t row = 0; row < size; row += inner)
        for (int64_t j = 0; j < inner; ++j) visit(row + j, j, C(C(x[row + j]) == C(y[j])));
    };
    std::fill_n(share, inner, C(0));
    for_each([&](int64_t, int64_t j, C attained) { share[j] += attained; });
    for (int64_t j = 0; j < inner; ++j) share[j] = C(g[j]) * (1 / share[j]);
    for_each([&](int64_t i, int64_t j, C attained) { dx[i] = static_cast<T>(share[j] * attained); });
  }
}

// y[j] = the first e whose x[e * inner + j] is the extreme.
template <class T> void find_first(int64_t extent, int64_t inner, const T* x, const Compute<T>* extreme, int64_t* y) {
  const auto found = [](Compute<T> value, Compute<T> wanted) {
    return (value == wanted) | ((value != value) & (wanted != wanted));
  };
  if (inner == 1) {  // skips blocks without the extreme in a vectorised loop
    const Compute<T> wanted = *extreme;
    int64_t e = 0;
    for (int hits = 0; e + full_width <= extent; e += full_width) {
      for (int64_t j = 0; j < full_width; ++j) hits += found(x[e + j], wanted);
      if (hits > 0) break;
    }
    while (e < extent && !found(x[e], wanted)) ++e;
    *y = e;
    return;
  }
  std::fill_n(y, inner, int64_t{0});
  for (int64_t e = extent; e-- > 0;)
    for (int64_t j = 0; j < inner; ++j) y[j] = found(x[e * inner + j], extreme[j]) ? e : y[j];
}

// Values with their indices, in the order of a stable sort in which NaN is the largest value.
template <class C> struct Ranked {
  C value;
  int64_t index;
};
template <class C> void rank(std::span<Ranked<C>> all, int64_t k, bool largest) {
  const auto below = [](C a, C b) { return a < b || (b != b && a == a); };
  const auto before = [=](const Ranked<C>& a, const Ranked<C>& b) {
    if (below(a.value, b.value)) return !largest;
    if (below(b.value, a.value)) return largest;
    return a.index < b.index;
  };
  if (k < static_cast<int64_t>(all.size()) / 8)
    std::partial_sort(all.begin(), all.begin() + k, all.end(), before);
  else
    std::sort(all.begin(), all.end(), before);
}
template <class T> void top_k(const T* x, Along along, int64_t k, bool largest, T* values, int64_t* indices) {
  const auto [outer, extent, inner] = along;
  const Temporary<Ranked<Compute<T>>> memory(extent);
  Ranked<Compute<T>>* all = memory;
  for (int64_t lane = 0; lane < outer * inner; ++lane) {
    const int64_t o = lane / inner, j = lane % inner;
    for (int64_t e = 0; e < extent; ++e) all[e] = {Compute<T>(x[(o * extent + e) * inner + j]), e};
    rank(std::span(all, static_cast<size_t>(extent)), k, largest);
    for (int64_t i = 0; i < k; ++i) {
      values[(o * k + i) * inner + j] = static_cast<T>(all[i].value);
      indices[(o * k + i) * inner + j] = all[i].index;
    }
  }
}

// Floating-point sums are in double, because there are no pairwise sums to keep the error small.
template <class T> void cumulative_sum(const T* x, Along along, bool reverse, T* y) {
  using Running = std::conditional_t<std::is_integral_v<T>, T, double>;
  const auto [outer, extent, inner] = along;
  const auto step = [=](Running& sum, int64_t at) {
    sum += static_cast<Running>(x[at]);
    y[at] = static_cast<T>(static_cast<Compute<T>>(sum));
  };
  for (int64_t o = 0; o < outer; ++o) {
    const int64_t first = (o * extent + (reverse ? extent - 1 : 0)) * inner, stride = reverse ? -inner : inner;
    Running sums[columns_at_once], sum = 0;
    for (int64_t e = 0; inner == 1 && e < extent; ++e) step(sum, first + e * stride);
    for (int64_t j = 0; inner > 1 && j < inner; j += columns_at_once) {
      const int64_t width = std::min(columns_at_once, inner - j);
      std::fill_n(sums, width, Running(0));
      for (int64_t e = 0; e < extent; ++e)
        for (int64_t i = 0; i < width; ++i) step(sums[i], first + e * stride + j + i);
    }
  }
}

}  // namespace
}  // namespace cpu

void CpuBackend::reduce(Reduction op, const Tensor& x, Along along, Tensor& y) {
  visit(x.dtype(),
        [&]<class T>() { cpu::with(op, [&](auto f) { cpu::reduce_all(f, x.data<T>(), along, y.mutate<T>()); }); });
}

void CpuBackend::reduce_outside(const Tensor& x, Along along, Tensor& y) {
  visit(x.dtype(), [&]<class T>() {
    const Along outside(1, along.outer, along.extent), inside(along.outer * along.extent, along.inner, 1);
    if (along.inner == 1) return cpu::reduce_all(cpu::Sum{}, x.data<T>(), outside, y.mutate<T>());
    const cpu::Temporary<Compute<T>> memory(inside.outer);
    Compute<T>* sums = memory;
    cpu::reduce_all(cpu::Sum{}, x.data<T>(), inside, sums);
    cpu::reduce_all(cpu::Sum{}, static_cast<const Compute<T>*>(sums), outside, y.mutate<T>());
  });
}

void CpuBackend::extreme_pullback(const Tensor& x, const Tensor& y, const Tensor& g, Along along, Tensor& dx) {
  visit_floating(x.dtype(),
                 [&]<class T>() { cpu::share_extremes(along, x.data<T>(), y.data<T>(), g.data<T>(), dx.mutate<T>()); });
}

void CpuBackend::repeat(const Tensor& x, Along along, Tensor& y) {
  visit(x.dtype(), [&]<class T>() {
    const T* from = x.data<T>();
    T* to = y.mutate<T>();
    for (int64_t o = 0; o < along.outer; ++o, from += along.inner) {
      if (along.inner == 1)
        to = std::fill_n(to, along.extent, T(*from));
      else
        for (int64_t e = 0; e < along.extent; ++e) to = std::copy_n(from, along.inner, to);
    }
  });
}

void CpuBackend::arg_reduce(Reduction op, const Tensor& x, Along along, Tensor& y) {
  visit(x.dtype(), [&]<class T>() {
    const cpu::Temporary<Compute<T>> memory(along.inner);
    Compute<T>* extreme = memory;
    const T* from = x.data<T>();
    int64_t* to = y.mutate<int64_t>();
    for (int64_t o = 0; o < along.outer; ++o, from += along.extent * along.inner, to += along.inner) {
      cpu::with(op, [&](auto f) { cpu::reduce_all(f, from, Along(1, along.extent, along.inner), extreme); });
      cpu::find_first(along.extent, along.inner, from, extreme, to);
    }
  });
}

void CpuBackend::cumulative_sum(const Tensor& x, Along along, bool reverse, Tensor& y) {
  visit(x.dtype(), [&]<class T>() { cpu::cumulative_sum(x.data<T>(), along, reverse, y.mutate<T>()); });
}

void CpuBackend::top_k(const Tensor& x, Along along, int64_t k, bool largest, Tensor& values, Tensor& indices) {
  visit(x.dtype(),
        [&]<class T>() { cpu::top_k(x.data<T>(), along, k, largest, values.mutate<T>(), indices.mutate<int64_t>()); });
}

void CpuBackend::flip(const Tensor& x, Along along, Tensor& y) {
  visit(x.dtype(), [&]<class T>() {
    const T* from = x.data<T>();
    T* to = y.mutate<T>();
    for (int64_t o = 0; o < along.outer; ++o, from += along.extent * along.inner) {
      if (along.inner == 1)
        to = std::reverse_copy(from, from + along.extent, to);
      else
        for (int64_t e = along.extent; e-- > 0;) to = std::copy_n(from + e * along.inner, along.inner, to);
    }
  });
}

}  // namespace weft
