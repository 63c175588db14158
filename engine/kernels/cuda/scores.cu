// SPDX-License-Identifier: Apache-2.0
// Sums over scores and their gradients. cuBLAS multiplies as many rows of q with all of k as fit into a tile; then one
// kernel reads it for the sums of rows, one for those of columns, and one for slopes. The host never reads scores, so
// nothing waits for the card.
#include "weft/engine/kernels/cuda/cuda_backend.h"
#include "weft/engine/kernels/cuda/exp_sums.cuh"
#include "weft/engine/kernels/log_sums.h"
#include "weft/engine/kernels/scalar_ops.h"

namespace weft {
namespace cuda {
namespace {

constexpr int64_t tile_bytes = int64_t{256} << 20;  // at least one row

template <class C> struct PlusShift {
  const C* shift;
  __device__ C operator()(C score) const { return score + *shift; }
};

template <class C> struct Exclude {
  int64_t n, per_row;
  const int64_t* columns;
  C* z;
  WEFT_HD void operator()(int64_t i) const {
    if (columns[i] >= 0) z[i / per_row * n + columns[i]] = -infinity<C>();
  }
};

// The sum of a row's scores, without that of its target, which is added last, in f64; see
// engine/kernels/cpu/scores/score_kernels.h.
template <ScoreSum kind, class C> struct SumRow {
  int64_t n;
  const C* z;
  const int64_t* targets;            // or null
  double *sums, *scores_of_targets;  // of the tile's rows
  template <class Team> __device__ void operator()(Team team, int64_t row) const {
    const int64_t target = targets ? targets[row] : -1;
    const C* const own = z + row * n;
    if constexpr (kind == ScoreSum::softplus) {
      double sum = 0;
      const auto add = [&](int64_t j, C score) { sum += double(Softplus().f(j == target ? -score : score)); };
      for_each_value(team, n, add, own);
      sum = team.reduce(sum, Add{});
      if (team.lane() == 0) sums[row] = sum;
    } else {
      auto sum = ExpSum<C>::empty();
      const auto add = [&](int64_t j, C score) { sum.add(j == target ? -infinity<C>() : score); };
      for_each_value(team, n, add, own);
      sum = team.reduce(sum, Added{});
      if (team.lane() != 0) return;
      sums[row] = sum.log();
      if (target < 0) return;
      scores_of_targets[row] = double(own[target]);
      sums[row] = log_add_exp(sums[row], scores_of_targets[row]);
    }
  }
};

// The derivatives with respect to the scores of a tile, in place.
template <class C> struct PrepareSlopes {
  bool shifted;
  const double *sums, *g;
  C *shifts, *factors;
  WEFT_HD void operator()(int64_t i) const {
    const auto [shift, factor] = shifted_slope<C>(g[i], shifted ? sums[i] : 0);
    shifts[i] = shift;
    factors[i] = factor;
  }
};
// Of all rows, or from one on.
template <class C> struct SumsAndSlopes {
  const C *shifts, *factors;
  const double *sums, *g;
  SumsAndSlopes from(int64_t i) const { return {shifts + i, factors + i, sums + i, g + i}; }
};
template <ScoreSum kind, class C, class To> struct Slopes {
  static constexpr int N = pack_of<C>;
  static constexpr bool both = kind == ScoreSum::log_sum_exp_both;
  int64_t n;
  const int64_t* targets;  // of the tile's rows, or null
  SumsAndSlopes<C> rows, columns, of_targets;
  const C* z;
  To to;

  template <class Team> __device__ void operator()(Team team, int64_t row) const {
    const int64_t target = targets ? targets[row] : -1;
    const C shift = rows.shifts[row], factor = rows.factors[row];
    for (int64_t j = team.lane() * N; j < n; j += Team::size * N) {
      const int64_t at = row * n + j, count = n - j;
      Pack<C, N> values = load<N>(z + at, count), column_shifts = {}, column_factors = {};
      if constexpr (both) {
        column_shifts = load<N>(columns.shifts + j, count);
        column_factors = load<N>(columns.factors + j, count);
      }
#pragma unroll
      for (int k = 0; k < N; ++k) {
        const C value = values.at[k];
        C slope = factor * (kind == ScoreSum::softplus ? Sigmoid::of(value) : maths::exp(value - shift));
        if constexpr (both) slope += column_factors.at[k] * maths::exp(value - column_shifts.at[k]);
        values.at[k] = j + k == target ? of_target(row, target, value) : slope;
      }
      to.store(values, at, count);
    }
  }

 private:
  __device__ C of_target(int64_t row, int64_t j, C value) const {
    if constexpr (kind == ScoreSum::softplus) return -(rows.factors[row] * Sigmoid::of(-value));
    const double score = of_targets.sums[row];  // nearly zero if the target is nearly the whole sum:
    double slope = slope_of_sum(rows.g[row], rows.sums[row], score) + of_targets.g[row];
    if constexpr (both) slope += slope_of_sum(columns.g[j], columns.sums[j], score);
    return C(slope);
  }
};

// Where slopes go: in place of the scores, or as two values of bf16, which together have 16 bits.
template <class C> struct InPlace {
  C* z;
  template <int N> __device__ void store(const Pack<C, N>& slopes, int64_t at, int64_t count) const {
    cuda::store(slopes, z + at, count);
  }
};
struct InHalves {
  BFloat16 *rounded, *rest;
  float* z;  // or null
  template <int N> __device__ void store(const Pack<float, N>& slopes, int64_t at, int64_t count) const {
    Pack<BFloat16, N> high, low;
#pragma unroll
    for (int k = 0; k < N; ++k) {
      high.at[k] = BFloat16(slopes.at[k]);
      low.at[k] = BFloat16(slopes.at[k] - float(high.at[k]));
    }
    cuda::store(high, rounded + at, count);
    cuda::store(low, rest + at, count);
    if (z) cuda::store(slopes, z + at, count);
  }
};

template <class F> void visit_wide(DType type, const F& f) {
  type == DType::f64 ? f.template operator()<double>() : f.template operator()<float>();
}
DType wide(DType type) { return type == DType::f64 ? DType::f64 : DType::f32; }

// The inputs of the scores, and the tile that their scores fill, some rows at a time. Scores of bf16 rows are f32, in
// which the products of two values are exact.
class Tiles {
 public:
  explicit Tiles(const Scores& z)
      : q(z.q),
        k(z.k),
        scale(z.scale.to(wide(z.q.dtype()))),
        factors(Tensor::zeros({2}, scale.dtype(), Device::cuda)),
        targets(z.targets ? *z.targets : Tensor()),
        shift_(z.shift ? z.shift->to(scale.dtype()) : Tensor()),
        excluded_(z.excluded ? *z.excluded : Tensor()) {
    factors.slice(0, 1).copy_from(scale.reshape({1}));
  }

  const Tensor q, k, scale, factors, targets;  // targets may be undefined

  int64_t m() const { return q.shape()[0]; }
  int64_t n() const { return k.shape()[0]; }
  bool empty() const { return m() == 0 || n() == 0; }
  int64_t height() const {  // rows of a tile
    return std::clamp<int64_t>(tile_bytes / (n() * static_cast<int64_t>(size_of(scale.dtype()))), 1, m());
  }
  const int64_t* targets_from(int64_t row) const { return targets.defined() ? targets.data<int64_t>() + row : nullptr; }

  // Calls multiply(rows of q, scores) and then visit(row, scores) for all rows, a tile at a time.
  template <class Multiply, class Visit> void for_each(const Multiply& multiply, const Visit& visit) const {
    const Tensor memory({height(), n()}, scale.dtype(), Device::cuda);
    for (int64_t row = 0; row < m(); row += height()) {
      Tensor scores = memory.slice(0, std::min(height(), m() - row));
      multiply(q.slice(row, row + scores.shape()[0]), scores);
      visit_wide(q.dtype(), [&]<class C>() { finish<C>(row, scores); });
      visit(row, scores);
    }
  }

 private:
  template <class C> void finish(int64_t row, Tensor& scores) const {
    C* const z = scores.mutate<C>();
    if (shift_.defined()) map(scores.size(), PlusShift<C>{shift_.data<C>()}, z, static_cast<const C*>(z));
    if (!excluded_.defined()) return;
    const int64_t per_row = excluded_.shape()[1];
    const int64_t* const columns = excluded_.data<int64_t>() + row * per_row;
    cuda::for_each(scores.shape()[0] * per_row, Exclude<C>{n(), per_row, columns, z});
  }

  const Tensor shift_, excluded_;
};

// Computes the derivatives with respect to the scores of a tile.
template <class C> class SlopesOf {
 public:
  SlopesOf(ScoreSum kind, const Tiles& tiles, const Tensor& sums, const Tensor& g)
      : kind_(kind),
        tiles_(tiles),
        count_(tiles.m() + (kind == ScoreSum::log_sum_exp_both ? tiles.n() : 0)),
        shifts_(count_),
        factors_(count_),
        all_{shifts_.data(), factors_.data(), sums.data<double>(), g.data<double>()} {
    for_each(count_, PrepareSlopes<C>{kind != ScoreSum::softplus, all_.sums, all_.g, shifts_.data(), factors_.data()});
  }

  template <class To> void operator()(int64_t row, const Tensor& scores, const To& to) const {
    const int64_t m = tiles_.m(), n = tiles_.n();
    const auto run = [&]<ScoreSum kind>() {
      for_each_row(scores.shape()[0], n,
                   Slopes<kind, C, To>{n, tiles_.targets_from(row), all_.from(row), all_.from(m),
                                       all_.from(count_ + row), scores.data<C>(), to});
    };
    using enum ScoreSum;
    switch (kind_) {
      case log_sum_exp: return run.template operator()<log_sum_exp>();
      case log_sum_exp_both: return run.template operator()<log_sum_exp_both>();
      case softplus: return run.template operator()<softplus>();
    }
  }

 private:
  const ScoreSum kind_;
  const Tiles& tiles_;
  const int64_t count_;  // the number of sums; the scores of targets follow them
  const Scratch<C> shifts_, factors_;
  const SumsAndSlopes<C> all_;
};

}  // namespace
}  // namespace cuda

void CudaBackend::score_sums(ScoreSum kind, const Scores& z, Tensor& sums) {
  const cuda::Tiles tiles(z);
  const bool both = kind == ScoreSum::log_sum_exp_both;
  const int64_t m = tiles.m(), n = tiles.n(), first_target = m + (both ? n : 0);
  const bool softplus = kind == ScoreSum::softplus;
  Tensor of_targets = sums.slice(first_target, sums.size());
  fill(softplus ? 0 : -std::numeric_limits<double>::infinity(), sums);
  fill(0, of_targets);
  if (tiles.empty()) return;
  const auto multiply = [&](const Tensor& rows, Tensor& scores) {
    products_of_rows(rows, tiles.k, tiles.factors, scores);
  };
  cuda::visit_wide(tiles.q.dtype(), [&]<class C>() {
    const cuda::Columns<C> columns(tiles.height(), both ? n : 0);
    double* const to = sums.mutate<double>();
    tiles.for_each(multiply, [&](int64_t row, const Tensor& scores) {
      const int64_t rows = scores.shape()[0];
      const auto run = [&]<ScoreSum of>() {
        cuda::for_each_row(
            rows, n,
            cuda::SumRow<of, C>{n, scores.data<C>(), tiles.targets_from(row), to + row, to + first_target + row});
      };
      softplus ? run.template operator()<ScoreSum::softplus>() : run.template operator()<ScoreSum::log_sum_exp>();
      if (both) columns.add(row, rows, scores.data<C>());
    });
    if (both) columns.finish(to + m);
  });
}

// cuBLAS multiplies values of one type, so the slopes of bf16 rows are two values of bf16 each. The result has 8 bits.
void CudaBackend::score_gradients(ScoreSum kind, const Scores& z, const Tensor& sums, const Tensor& g,
                                  ScoreGradients& to) {
  const cuda::Tiles tiles(z);
  const Tensor &q = tiles.q, &k = tiles.k, &scale = tiles.scale;
  const auto zeros = [&](const Shape& shape) { return Tensor::zeros(shape, scale.dtype(), Device::cuda); };
  Tensor dq = zeros(q.shape()), dk = zeros(k.shape()), dshift = zeros({}), part = zeros({});
  const auto multiply = [&](const Tensor& rows, Tensor& scores) { products_of_rows(rows, k, tiles.factors, scores); };
  const auto add_products = [&](const Tensor& slopes, int64_t row, int64_t end) {
    Tensor rows = dq.slice(row, end);
    if (to.q.defined() || to.scale.defined()) add_product(slopes, false, k, rows);
    if (to.k.defined()) add_product(slopes, true, q.slice(row, end), dk);
  };
  const auto walk = [&]<class X>() {
    using C = Compute<X>;
    const cuda::SlopesOf<C> slopes_of(kind, tiles, sums, g);
    tiles.for_each(multiply, [&](int64_t row, Tensor& scores) {
      const int64_t end = row + scores.shape()[0];
      if constexpr (!std::is_same_v<X, C>) {
        Tensor rounded(scores.shape(), DType::bf16, Device::cuda), rest = Tensor::like(rounded);
        float* const wide = to.shift.defined() ? scores.mutate<float>() : nullptr;
        slopes_of(row, scores, cuda::InHalves{rounded.mutate<BFloat16>(), rest.mutate<BFloat16>(), wide});
        add_products(rounded, row, end);
        add_products(rest, row, end);
      } else {
        slopes_of(row, scores, cuda::InPlace<C>{scores.mutate<C>()});
        add_products(scores, row, end);
      }
      if (!to.shift.defined()) return;
      reduce(Reduction::sum, scores, Along(1, scores.size(), 1), part);
      accumulate(1, part, dshift);
    });
  };
  if (!tiles.empty()) visit_floating(q.dtype(), walk);
  if (to.shift.defined()) cast(dshift, to.shift);
  if (to.scale.defined()) {  // d scale = sum over rows of q (dz k), where dz k is dq before scaling
    Tensor products = Tensor::like(dq);
    binary(Binary::Multiply, q.to(dq.dtype()), dq, products);
    reduce(Reduction::sum, products, Along(1, q.size(), 1), part);
    cast(part, to.scale);
  }
  const auto scaled = [&](Tensor& slope, Tensor& result) {
    if (!result.defined()) return;
    binary_along(Binary::Multiply, slope, scale, Along(1, 1, slope.size()), slope);
    cast(slope, result);
  };
  scaled(dq, to.q);
  scaled(dk, to.k);
}

}  // namespace weft
