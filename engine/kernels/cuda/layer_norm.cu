// SPDX-License-Identifier: Apache-2.0
// Rows normalized to mean zero and variance one, and the scale, shift and relu of a layer.
#include "weft/engine/kernels/cuda/cuda_backend.h"
#include "weft/engine/kernels/cuda/rows.cuh"
#include "weft/engine/kernels/scalar_ops.h"

namespace weft {
namespace cuda {
namespace {

// The moments of a row: the mean, and 1 / deviation.
template <class T> struct Moments {
  Compute<T> mean, rstd;
  __device__ Compute<T> normalized(Compute<T> value) const { return (value - mean) * rstd; }
};
template <class Team, class T>
__device__ Moments<T> moments_of(Team team, int64_t n, Compute<T> epsilon, const T* row) {
  using C = Compute<T>;
  const C mean = sum_over(team, n, Constant{}, row) / C(n);
  const auto squared = [&](C value) { return (value - mean) * (value - mean); };
  return {mean, C(1) / maths::sqrt(sum_over(team, n, squared, row) / C(n) + epsilon)};
}

template <class T> struct Standardize {
  int64_t n;
  Compute<T> epsilon;
  const T* x;
  T *y, *rstd;
  template <class Team> __device__ void operator()(Team team, int64_t row) const {
    const Moments<T> of_row = moments_of(team, n, epsilon, x + row * n);
    map_row(
        team, n, [&](T value) { return T(of_row.normalized(value)); }, y + row * n, x + row * n);
    if (team.lane() == 0) rstd[row] = T(of_row.rstd);
  }
};

template <class T> struct StandardizePullback {
  int64_t n;
  const T *y, *rstd, *g;
  T* dx;
  template <class Team> __device__ void operator()(Team team, int64_t row) const {
    using C = Compute<T>;
    const T *const values = y + row * n, *const slopes = g + row * n;
    const C scale = C(rstd[row]);
    const C mean = sum_over(team, n, Constant{}, slopes) / C(n);
    const C along = sum_over(team, n, Multiply{}, slopes, values) / C(n);
    const auto finish = [&](T value, T slope) { return T(scale * (C(slope) - mean - C(value) * along)); };
    map_row(team, n, finish, dx + row * n, values, slopes);
  }
};

template <bool relu, class T> struct LayerNorm {
  int64_t n;
  Compute<T> epsilon;
  const T *x, *gamma, *beta;
  T* y;
  Moments<T>* moments;
  template <class Team> __device__ void operator()(Team team, int64_t row) const {
    using C = Compute<T>;
    const Moments<T> of_row = moments_of(team, n, epsilon, x + row * n);
    const auto finish = [&](T value, T scale, T shift) {
      const C result = of_row.normalized(value) * C(scale) + C(shift);
      return T(relu ? Relu{}.f(result) : result);
    };
    map_row(team, n, finish, y + row * n, x + row * n, gamma, beta);
    if (team.lane() == 0) moments[row] = of_row;
  }
};

template <bool relu, class T> struct LayerNormPullback {
  int64_t n;
  const T *x, *gamma, *y, *g;  // y is read only after a relu
  const Moments<T>* moments;
  T* dx;
  __device__ static Compute<T> slope(Compute<T> g, Compute<T> y) { return relu ? Relu{}.df(y) * g : g; }
  template <class Team> __device__ void operator()(Team team, int64_t row) const {
    using C = Compute<T>;
    const T *const values = x + row * n, *const outputs = y + row * n, *const cotangents = g + row * n;
    const Moments<T> of_row = moments[row];
    const auto first = [](C g, C y, C scale) { return slope(g, y) * scale; };
    const auto second = [&](C g, C y, C scale, C value) { return first(g, y, scale) * of_row.normalized(value); };
    const C mean = sum_over(team, n, first, cotangents, outputs, gamma) / C(n);
    const C along = sum_over(team, n, second, cotangents, outputs, gamma, values) / C(n);
    const auto finish = [&](T g, T y, T scale, T value) {
      return T(of_row.rstd * (first(C(g), C(y), C(scale)) - mean - of_row.normalized(value) * along));
    };
    map_row(team, n, finish, dx + row * n, cotangents, outputs, gamma, values);
  }
};

// A block takes a part of the rows, and sums the gradients of gamma and beta over it: sums[part][2 n]. What it reads
// for these is still in its cache.
template <bool relu, class T> struct PullbackOfPart {
  using C = Compute<T>;
  LayerNormPullback<relu, T> of;
  int64_t rows, length;
  C* sums;

  template <class Block> __device__ void operator()(Block block, int64_t part) const {
    const int64_t begin = part * length, past = begin + length, end = past < rows ? past : rows;
    if (of.n <= longest_row_of_warp)
      for (int64_t row = begin + block.lane() / warp_threads; row < end; row += Block::warps)
        of(Team<warp_threads>{}, row);
    else
      for (int64_t row = begin; row < end; ++row) of(block, row);
    for (int64_t first = 0; first < of.n; first += warp_threads) sum_columns(block, first, begin, end, part);
  }

 private:
  // Of adjacent columns, one for each lane of a warp.
  template <class Block>
  __device__ void sum_columns(Block block, int64_t first, int64_t begin, int64_t end, int64_t part) const {
    const int64_t j = first + block.lane() % warp_threads;
    C by_gamma = 0, by_beta = 0;
    for (int64_t row = begin + block.lane() / warp_threads; row < end && j < of.n; row += Block::warps) {
      const int64_t at = row * of.n + j;
      const C slope = of.slope(C(of.g[at]), C(of.y[at]));
      by_gamma += slope * of.moments[row].normalized(of.x[at]);
      by_beta += slope;
    }
    by_gamma = block.template reduce_columns<warp_threads>(by_gamma, Add{});
    by_beta = block.template reduce_columns<warp_threads>(by_beta, Add{});
    if (block.lane() >= warp_threads || j >= of.n) return;
    sums[2 * part * of.n + j] = by_gamma;
    sums[(2 * part + 1) * of.n + j] = by_beta;
  }
};
// The sums over the parts, with one team per sum.
template <class T> struct SumParts {
  int64_t n, parts;
  const Compute<T>* sums;
  T *dgamma, *dbeta;
  template <class Team> __device__ void operator()(Team team, int64_t column) const {
    Compute<T> sum = 0;
    for (int64_t part = team.lane(); part < parts; part += Team::size) sum += sums[2 * part * n + column];
    sum = team.reduce(sum, Add{});
    if (team.lane() == 0) (column < n ? dgamma[column] : dbeta[column - n]) = T(sum);
  }
};

template <bool relu, class T>
void layer_norm_pullback(const LayerNormPullback<relu, T>& kernel, int64_t rows, T* dgamma, T* dbeta) {
  constexpr int64_t most_parts = 512, rows_at_once = block_threads / warp_threads;
  const int64_t n = kernel.n, length = std::max(ceil_divide(rows, most_parts), rows_at_once);
  const int64_t parts = ceil_divide(rows, length);
  const Scratch<Compute<T>> sums(2 * parts * n);
  for_each_block(parts, PullbackOfPart<relu, T>{kernel, rows, length, sums.data()});
  for_each_row(2 * n, parts, SumParts<T>{n, parts, sums.data(), dgamma, dbeta});
}

}  // namespace
}  // namespace cuda

using cuda::for_rows_of;

void CudaBackend::standardize_rows(double epsilon, const Tensor& x, Tensor& y, Tensor& rstd) {
  visit_floating(x.dtype(), [&]<class T>() {
    for_rows_of(x, [&](int64_t n) {
      return cuda::Standardize<T>{n, static_cast<Compute<T>>(epsilon), x.data<T>(), y.mutate<T>(), rstd.mutate<T>()};
    });
  });
}
void CudaBackend::standardize_rows_pullback(const Tensor& y, const Tensor& rstd, const Tensor& g, Tensor& dx) {
  visit_floating(y.dtype(), [&]<class T>() {
    for_rows_of(y, [&](int64_t n) {
      return cuda::StandardizePullback<T>{n, y.data<T>(), rstd.data<T>(), g.data<T>(), dx.mutate<T>()};
    });
  });
}
void CudaBackend::layer_norm_rows(double epsilon, bool relu, const Tensor& x, const Tensor& gamma, const Tensor& beta,
                                  Tensor& y, Tensor& moments) {
  visit_floating(x.dtype(), [&]<class T>() {
    const T *from = x.data<T>(), *scale = gamma.data<T>(), *shift = beta.data<T>();
    const Compute<T> e = static_cast<Compute<T>>(epsilon);
    T* to = y.mutate<T>();
    auto* of_rows = moments.mutate<cuda::Moments<T>>();
    using cuda::LayerNorm;
    if (relu)
      for_rows_of(x, [&](int64_t n) { return LayerNorm<true, T>{n, e, from, scale, shift, to, of_rows}; });
    else
      for_rows_of(x, [&](int64_t n) { return LayerNorm<false, T>{n, e, from, scale, shift, to, of_rows}; });
  });
}
void CudaBackend::layer_norm_rows_pullback(const NormedRows& saved, const Tensor& g, Tensor& dx, Tensor& dgamma,
                                           Tensor& dbeta) {
  visit_floating(g.dtype(), [&]<class T>() {
    const auto run = [&]<bool relu>() {
      const T *x = saved.x.data<T>(), *gamma = saved.gamma.data<T>(), *cotangents = g.data<T>();
      const T* y = relu ? saved.rectified.data<T>() : cotangents;
      const auto* moments = saved.moments.data<cuda::Moments<T>>();
      const int64_t n = saved.gamma.size();
      cuda::layer_norm_pullback(cuda::LayerNormPullback<relu, T>{n, x, gamma, y, cotangents, moments, dx.mutate<T>()},
                                g.size() / n, dgamma.mutate<T>(), dbeta.mutate<T>());
    };
    saved.rectified.defined() ? run.template operator()<true>() : run.template operator()<false>();
  });
}

}  // namespace weft
