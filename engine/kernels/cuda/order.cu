// SPDX-License-Identifier: Apache-2.0
// Verbs along an axis that compare its elements: extremes with their places, and the first k in order.
#include "weft/engine/kernels/cuda/cuda_backend.h"
#include "weft/engine/kernels/cuda/launch.cuh"

namespace weft {
namespace cuda {
namespace {

// A value and its index; -1 if there is none. The type is trivial, because it is in shared memory.
template <class T> struct Candidate {
  T value;
  int64_t index;
};
template <class T> __device__ Candidate<T> swap_lanes(Candidate<T> c, int distance) {
  return {cuda::swap_lanes(c.value, distance), cuda::swap_lanes(c.index, distance)};
}
// Whether a precedes b in descending (or ascending) order, in which NaN is the largest value.
template <bool descending, class T> __device__ bool precedes(T a, T b) {
  const bool less = a < b || (b != b && a == a), greater = a > b || (a != a && b == b);
  return descending ? greater : less;
}
// The candidate that comes first in that order; of equal ones that with the smaller index.
template <bool descending> struct Earlier {
  template <class T> __device__ static bool is(const Candidate<T>& a, const Candidate<T>& b) {
    return precedes<descending>(a.value, b.value) || (a.index < b.index && !precedes<descending>(b.value, a.value));
  }
  template <class T> __device__ Candidate<T> operator()(const Candidate<T>& a, const Candidate<T>& b) const {
    if (a.index < 0 || b.index < 0) return a.index < 0 ? b : a;
    return is(a, b) ? a : b;
  }
};
// The better candidate. NaN is the best, and of equal candidates the first is better.
template <bool largest> struct Better {
  template <class T> __device__ Candidate<T> operator()(const Candidate<T>& a, const Candidate<T>& b) const {
    if (a.index < 0 || b.index < 0) return a.index < 0 ? b : a;
    const bool a_nan = a.value != a.value, b_nan = b.value != b.value;
    if (a_nan != b_nan) return a_nan ? a : b;
    if (largest ? a.value > b.value : a.value < b.value) return a;
    if (largest ? b.value > a.value : b.value < a.value) return b;
    return a.index < b.index ? a : b;
  }
};
template <bool largest, class T> struct ArgRows {
  const T* x;
  int64_t extent;
  int64_t* y;
  template <class Team> __device__ void operator()(Team team, int64_t row) const {
    using C = Compute<T>;
    Candidate<C> best = {C(0), -1};
    const auto visit = [&](int64_t e, T value) { best = Better<largest>{}(best, Candidate<C>{C(value), e}); };
    for_each_value(team, extent, visit, x + row * extent);
    best = team.reduce(best, Better<largest>{});
    if (team.lane() == 0) y[row] = best.index;
  }
};
template <bool largest, class T> struct ArgColumns {
  const T* x;
  Along along;
  int64_t* y;
  __device__ void operator()(int64_t i) const {
    using C = Compute<T>;
    const auto [o, j] = split(i, along.inner);
    Candidate<C> best = {C(0), -1};
    for (int64_t e = 0; e < along.extent; ++e)
      best = Better<largest>{}(best, Candidate<C>{C(x[(o * along.extent + e) * along.inner + j]), e});
    y[i] = best.index;
  }
};
template <bool largest, class T> void arg_reduce(const T* x, Along along, int64_t* y) {
  if (along.inner == 1)
    for_each_row(along.outer, along.extent, ArgRows<largest, T>{x, along.extent, y});
  else
    for_each(along.outer * along.inner, ArgColumns<largest, T>{x, along, y});
}

// Few of many: a team finds the next of its line, one after the other, in k passes.
template <bool largest, class T> struct Next {
  const T* x;
  Along along;
  int64_t k;
  T* values;
  int64_t* indices;
  template <class Team> __device__ void operator()(Team team, int64_t line) const {
    using C = Compute<T>;
    const auto [o, j] = split(line, along.inner);
    const T* const first = x + o * along.extent * along.inner + j;
    Candidate<C> last = {C(0), -1};
    for (int64_t place = 0; place < k; ++place) {
      Candidate<C> best = {C(0), -1};
      for (int64_t e = team.lane(); e < along.extent; e += Team::size) {
        const Candidate<C> next = {C(first[e * along.inner]), e};
        if (last.index < 0 || Earlier<largest>::is(last, next)) best = Earlier<largest>{}(best, next);
      }
      last = team.reduce(best, Earlier<largest>{});
      if (team.lane() != 0) continue;
      const int64_t at = (o * k + place) * along.inner + j;
      values[at] = first[last.index * along.inner];
      indices[at] = last.index;
    }
  }
};

// Many of few: the position of an element is the number of elements that precede it. This needs no sorting and no
// shared state, but extent^2 comparisons per line.
template <bool largest, class T> struct Rank {
  const T* x;
  Along along;
  int64_t k;
  T* values;
  int64_t* indices;
  __device__ void operator()(int64_t i) const {
    using C = Compute<T>;
    const auto [line, j] = split(i, along.inner);
    const auto [o, e] = split(line, along.extent);
    const T* const first = x + o * along.extent * along.inner + j;
    const C mine = C(first[e * along.inner]);
    int64_t place = 0;
    for (int64_t other = 0; other < along.extent; ++other) {
      const C value = C(first[other * along.inner]);
      place += precedes<largest>(value, mine) || (other < e && !precedes<largest>(mine, value));
    }
    if (place >= k) return;
    const int64_t at = (o * k + place) * along.inner + j;
    values[at] = x[i];
    indices[at] = e;
  }
};

template <bool largest, class T> void top_k(const T* x, Along along, int64_t k, T* values, int64_t* indices) {
  if (k <= along.extent / 8)
    for_each_row(along.outer * along.inner, along.extent, Next<largest, T>{x, along, k, values, indices});
  else
    for_each(along.outer * along.extent * along.inner, Rank<largest, T>{x, along, k, values, indices});
}

}  // namespace
}  // namespace cuda

void CudaBackend::arg_reduce(Reduction op, const Tensor& x, Along along, Tensor& y) {
  visit(x.dtype(), [&]<class T>() {
    if (op == Reduction::maximum)
      cuda::arg_reduce<true>(x.data<T>(), along, y.mutate<int64_t>());
    else
      cuda::arg_reduce<false>(x.data<T>(), along, y.mutate<int64_t>());
  });
}

void CudaBackend::top_k(const Tensor& x, Along along, int64_t k, bool largest, Tensor& values, Tensor& indices) {
  visit(x.dtype(), [&]<class T>() {
    const T* const from = x.data<T>();
    T* const to = values.mutate<T>();
    int64_t* const places = indices.mutate<int64_t>();
    largest ? cuda::top_k<true>(from, along, k, to, places) : cuda::top_k<false>(from, along, k, to, places);
  });
}

}  // namespace weft
