// SPDX-License-Identifier: Apache-2.0
// Verbs along an axis that combine its elements.
#include <limits>

#include "weft/engine/kernels/cuda/cuda_backend.h"
#include "weft/engine/kernels/cuda/launch.cuh"
#include "weft/engine/kernels/scalar_ops.h"

namespace weft {
namespace cuda {
namespace {

// The binary ops, with the value of an empty reduction.
template <class T> using Limits = std::numeric_limits<T>;
struct Sum : Add {
  template <class T> static constexpr T identity = 0;
};
struct Product : Multiply {
  template <class T> static constexpr T identity = 1;
};
struct Largest : Maximum {
  template <class T>
  static constexpr T identity = Limits<T>::has_infinity ? -Limits<T>::infinity() : Limits<T>::lowest();
};
struct Smallest : Minimum {
  template <class T> static constexpr T identity = Limits<T>::has_infinity ? Limits<T>::infinity() : Limits<T>::max();
};
template <class F> void with(Reduction op, F&& run) {
  switch (op) {
    case Reduction::sum: return run(Sum{});
    case Reduction::product: return run(Product{});
    case Reduction::maximum: return run(Largest{});
    case Reduction::minimum: return run(Smallest{});
  }
}

// The axis divided into parts of equal length, so that reductions with few outputs keep the card busy, too. The
// division depends only on the axis, so the bits of a line do not depend on other lines.
struct Parts {
  int64_t count = 1, length;
  static Parts whole(const Along& a) { return {1, a.extent}; }
  static Parts of(const Along& a) {
    if (a.extent <= 4096) return whole(a);
    const int64_t length = ceil_divide(a.extent, std::clamp<int64_t>(a.extent / (a.inner == 1 ? 4096 : 1024), 1, 1024));
    return {ceil_divide(a.extent, length), length};
  }
  struct Range {
    int64_t begin, end;
  };
  WEFT_HD Range range(int64_t part, const Along& a) const {
    const int64_t begin = part * length, past = begin + length;
    return {begin, past < a.extent ? past : a.extent};
  }
};

// y[outer][part] over contiguous values, with one team per result.
template <class F, class X, class Y> struct ReduceRows {
  const X* x;
  Along along;
  Parts parts;
  Y* y;
  template <class Team> __device__ void operator()(Team team, int64_t row) const {
    using C = Compute<X>;
    const auto [o, part] = split(row, parts.count);
    const auto [begin, end] = parts.range(part, along);
    C sum = F::template identity<C>;
    for_each_value(
        team, end - begin, [&](int64_t, X value) { sum = F{}(sum, C(value)); }, x + o * along.extent + begin);
    sum = team.reduce(sum, F{});
    if (team.lane() == 0) y[row] = static_cast<Y>(sum);
  }
};
// y[outer][part][inner], with a block for 32 results that are adjacent along inner.
template <class F, class X, class Y> struct ReduceColumns {
  static constexpr int N = pack_of<X>, columns = warp_threads, across = columns / N;
  using C = Compute<X>;
  using Sums = Pack<C, N>;
  const X* x;
  Along along;
  Parts parts;
  int64_t blocks;  // for the results of a part
  Y* y;
  template <class Block> __device__ void operator()(Block block, int64_t i) const {
    const auto [segment, number] = split(i, blocks);
    const auto [o, part] = split(segment, parts.count);
    const auto [begin, end] = parts.range(part, along);
    const int64_t column = number * columns + block.lane() % across * N, left = along.inner - column;
    Sums sums;
    for (C& sum : sums.at) sum = F::template identity<C>;
#pragma unroll 4
    for (int64_t e = begin + block.lane() / across; e < end; e += Block::size / across)
      sums = combined(sums, load<N>(x + (o * along.extent + e) * along.inner + column, left));
    sums = block.template reduce_columns<across>(sums, [](auto a, auto b) { return combined(a, b); });
    if (block.lane() >= across) return;
    for (int k = 0; k < N; ++k)
      if (k < left) y[segment * along.inner + column + k] = static_cast<Y>(sums.at[k]);
  }

 private:
  template <class V> __device__ static Sums combined(Sums sums, const Pack<V, N>& more) {
#pragma unroll
    for (int k = 0; k < N; ++k) sums.at[k] = F{}(sums.at[k], C(more.at[k]));
    return sums;
  }
};
// The same for a short axis, with one thread per result; consecutive threads are adjacent along inner.
template <class F, class X, class Y> struct ReduceShortColumns {
  const X* x;
  Along along;
  Parts parts;
  Y* y;
  __device__ void operator()(int64_t i) const {
    using C = Compute<X>;
    const auto [segment, j] = split(i, along.inner);
    const auto [o, part] = split(segment, parts.count);
    const auto [begin, end] = parts.range(part, along);
    C sum = F::template identity<C>;
#pragma unroll 8
    for (int64_t e = begin; e < end; ++e) sum = F{}(sum, C(x[(o * along.extent + e) * along.inner + j]));
    y[i] = static_cast<Y>(sum);
  }
};
template <class F, class X, class Y> void reduce_parts(const X* x, Along along, Parts parts, Y* y) {
  const int64_t segments = along.outer * parts.count;
  using Columns = ReduceColumns<F, X, Y>;
  if (parts.length <= (along.inner == 1 ? 16 : 64)) {
    for_each(segments * along.inner, ReduceShortColumns<F, X, Y>{x, along, parts, y});
  } else if (along.inner == 1) {
    for_each_row(segments, parts.length, ReduceRows<F, X, Y>{x, along, parts, y});
  } else {
    const int64_t blocks = ceil_divide(along.inner, Columns::columns);
    for_each_block(segments * blocks, Columns{x, along, parts, blocks, y});
  }
}
template <class F, class X, class Y> void reduce_along(const X* x, Along along, Y* y) {
  const Parts parts = Parts::of(along);
  if (parts.count == 1) return reduce_parts<F>(x, along, parts, y);
  const Scratch<Compute<X>> of_parts(along.outer * parts.count * along.inner);
  const Along rest(along.outer, parts.count, along.inner);
  reduce_parts<F>(x, along, parts, of_parts.data());
  reduce_parts<F>(static_cast<const Compute<X>*>(of_parts.data()), rest, Parts::whole(rest), y);
}

// Where x is the extreme y of its line, dx is an equal share of g. A team or a thread takes a line.
template <class T> struct ShareExtremes {
  using C = Compute<T>;
  Along along;
  const T *x, *y, *g;
  T* dx;
  __device__ C attained(T value, int64_t line) const { return C(C(value) == C(y[line])); }
  __device__ C share(C count, int64_t line) const { return C(g[line]) * (C(1) / count); }

  template <class Team> __device__ void operator()(Team team, int64_t line) const {
    const T* const row = x + line * along.extent;
    C count = 0;
    for_each_value(
        team, along.extent, [&](int64_t, T value) { count += attained(value, line); }, row);
    const C each = share(team.reduce(count, Add{}), line);
    map_row(
        team, along.extent, [&](T value) { return T(each * attained(value, line)); }, dx + line * along.extent, row);
  }
  __device__ void operator()(int64_t line) const {
    const auto [o, j] = split(line, along.inner);
    const int64_t first = o * along.extent * along.inner + j, end = first + along.extent * along.inner;
    C count = 0;
    for (int64_t i = first; i < end; i += along.inner) count += attained(x[i], line);
    const C each = share(count, line);
    for (int64_t i = first; i < end; i += along.inner) dx[i] = T(each * attained(x[i], line));
  }
};

// Floating-point sums are in double, as on the CPU, because there are no pairwise sums to keep the error small.
template <class T> using Running = std::conditional_t<std::is_integral_v<T>, T, double>;

template <class T> struct CumulateRows {
  const T* x;
  int64_t extent;
  bool reverse;
  T* y;
  template <class Team> __device__ void operator()(Team team, int64_t row) const {
    Running<T> before = 0;
    for (int64_t first = 0; first < extent; first += Team::size) {  // all threads loop alike, because scan needs them
      const int64_t e = first + team.lane(), at = row * extent + (reverse ? extent - 1 - e : e);
      Running<T> total;
      const Running<T> sum = before + team.scan(e < extent ? static_cast<Running<T>>(x[at]) : Running<T>(0), total);
      if (e < extent) y[at] = static_cast<T>(static_cast<Compute<T>>(sum));
      before += total;
    }
  }
};
template <class T> struct CumulateColumns {
  const T* x;
  Along along;
  bool reverse;
  T* y;
  __device__ void operator()(int64_t i) const {
    const auto [o, j] = split(i, along.inner);
    Running<T> sum = 0;
    for (int64_t e = 0; e < along.extent; ++e) {
      const int64_t at = (o * along.extent + (reverse ? along.extent - 1 - e : e)) * along.inner + j;
      sum += static_cast<Running<T>>(x[at]);
      y[at] = static_cast<T>(static_cast<Compute<T>>(sum));
    }
  }
};

}  // namespace
}  // namespace cuda

void CudaBackend::reduce(Reduction op, const Tensor& x, Along along, Tensor& y) {
  visit(x.dtype(), [&]<class T>() {
    cuda::with(op, [&]<class F>(F) { cuda::reduce_along<F>(x.data<T>(), along, y.mutate<T>()); });
  });
}

void CudaBackend::extreme_pullback(const Tensor& x, const Tensor& y, const Tensor& g, Along along, Tensor& dx) {
  visit_floating(x.dtype(), [&]<class T>() {
    const cuda::ShareExtremes<T> share{along, x.data<T>(), y.data<T>(), g.data<T>(), dx.mutate<T>()};
    if (along.inner == 1)
      cuda::for_each_row(along.outer, along.extent, share);
    else
      cuda::for_each(along.outer * along.inner, share);
  });
}

void CudaBackend::reduce_outside(const Tensor& x, Along along, Tensor& y) {
  const int64_t outer = along.outer, extent = along.extent, inner = along.inner;
  visit(x.dtype(), [&]<class T>() {
    using C = Compute<T>;
    if (inner == 1) return cuda::reduce_along<cuda::Sum>(x.data<T>(), Along(1, outer, extent), y.mutate<T>());
    if (outer == 1) return cuda::reduce_along<cuda::Sum>(x.data<T>(), Along(extent, inner, 1), y.mutate<T>());
    const cuda::Scratch<C> inside(outer * extent);
    cuda::reduce_along<cuda::Sum>(x.data<T>(), Along(outer * extent, inner, 1), inside.data());
    cuda::reduce_along<cuda::Sum>(static_cast<const C*>(inside.data()), Along(1, outer, extent), y.mutate<T>());
  });
}

void CudaBackend::cumulative_sum(const Tensor& x, Along along, bool reverse, Tensor& y) {
  const int64_t outer = along.outer, extent = along.extent, inner = along.inner;
  visit(x.dtype(), [&]<class T>() {
    const T* const from = x.data<T>();
    T* const to = y.mutate<T>();
    if (inner == 1)
      cuda::for_each_row(outer, extent, cuda::CumulateRows<T>{from, extent, reverse, to});
    else
      cuda::for_each(outer * inner, cuda::CumulateColumns<T>{from, along, reverse, to});
  });
}

}  // namespace weft
