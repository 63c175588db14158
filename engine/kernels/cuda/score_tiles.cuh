// SPDX-License-Identifier: Apache-2.0
#pragma once
// What is done with a tile of scores: sums of rows, and slopes in place of the scores. exp_sums.cuh sums columns.
#include "weft/engine/kernels/cuda/checked_indices.cuh"
#include "weft/engine/kernels/cuda/exp_sums.cuh"
#include "weft/engine/kernels/cuda/parts.cuh"
#include "weft/engine/kernels/log_sums.h"
#include "weft/engine/kernels/scalar_ops.h"

namespace weft::cuda {

template <class C> struct PlusShift {
  const C* shift;
  __device__ C operator()(C score) const { return score + *shift; }
};

template <class C> struct Exclude {
  Tile tile;
  int64_t per_row;
  CheckedIndices columns;  // of the tile's rows
  C* z;
  __device__ void operator()(int64_t i) const {
    const int64_t column = tile.inside(columns[i]);
    if (column >= 0) z[i / per_row * tile.columns + column] = -infinity<C>();
  }
};

// The sum of a row's scores, without that of its target, which is added last, in f64; see
// engine/kernels/cpu/scores/score_kernels.h. It goes on in the next tile of these rows.
template <ScoreSum kind, class C> struct SumRow {
  Tile tile;
  const C* z;
  CheckedIndices targets;  // of the tile's rows, as all that follows; may be undefined
  ExpSum<C>* parts;        // of the sums: those of earlier tiles
  double *sums, *scores_of_targets;
  template <class Team> __device__ void operator()(Team team, int64_t row) const {
    const int64_t target = targets[row], here = tile.inside(target);
    const C* const own = z + row * tile.columns;
    if constexpr (kind == ScoreSum::softplus) {
      double sum = 0;
      const auto add = [&](int64_t j, C score) { sum += double(Softplus().f(j == here ? -score : score)); };
      for_each_value(team, tile.columns, add, own);
      sum = team.reduce(sum, Add{});
      if (team.lane() == 0) sums[row] = tile.column == 0 ? sum : sums[row] + sum;
    } else {
      auto sum = ExpSum<C>::empty();
      const auto add = [&](int64_t j, C score) { sum.add(j == here ? -infinity<C>() : score); };
      for_each_value(team, tile.columns, add, own);
      sum = team.reduce(sum, Added{});
      if (team.lane() != 0) return;
      if (here >= 0) scores_of_targets[row] = double(own[here]);
      if (tile.column > 0) sum.add(parts[row]);
      if (!tile.last) {
        parts[row] = sum;
        return;
      }
      sums[row] = sum.log();
      if (target >= 0)
        sums[row] = log_add_exp(sums[row], scores_of_targets[row]);
      else if (targets.defined())
        scores_of_targets[row] = 0;
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
  static constexpr int N = To::pack;
  static constexpr bool both = kind == ScoreSum::log_sum_exp_both;
  Tile tile;
  CheckedIndices targets;  // of the tile's rows, or undefined
  SumsAndSlopes<C> rows, columns, of_targets;
  const C* z;
  To to;

  template <class Team> __device__ void operator()(Team team, int64_t row) const {
    // The thread that stores the target's slope with its neighbours' stores it again, by a formula of its own.
    const int64_t n = tile.columns, target = tile.inside(targets[row]), begin = row * n;
    const bool again = target >= 0 && target / N % Team::size == team.lane();
    const C of_pair = again ? z[begin + target] : C(0);
    const C shift = rows.shifts[row], factor = rows.factors[row];
    for (int64_t j = team.lane() * N; j < n; j += Team::size * N) {
      const int64_t count = n - j;
      Pack<C, N> values = load<N>(z + begin + j, count), column_shifts = {}, column_factors = {};
      if constexpr (both) {
        column_shifts = load<N>(columns.shifts + j, count);
        column_factors = load<N>(columns.factors + j, count);
      }
#pragma unroll
      for (int k = 0; k < N; ++k) {
        const C value = values.at[k];
        values.at[k] = factor * (kind == ScoreSum::softplus ? Sigmoid::of(value) : maths::exp(value - shift));
        if constexpr (both) values.at[k] += column_factors.at[k] * maths::exp(value - column_shifts.at[k]);
      }
      to.store(values, begin + j, count);
    }
    if (again) to.store(Pack<C, 1>{of_target(row, target, of_pair)}, begin + target, 1);
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

// Where slopes go: in place of the scores, or into tiles of their parts in bf16.
template <class C> struct InPlace {
  static constexpr int pack = pack_of<C>;
  C* z;
  template <int N> __device__ void store(const Pack<C, N>& slopes, int64_t at, int64_t count) const {
    cuda::store(slopes, z + at, count);
  }
};
template <int parts> struct InParts {
  static constexpr int pack = pack_of<BFloat16>;
  BFloat16* tiles[parts];
  float* z;  // or null
  template <int N> __device__ void store(const Pack<float, N>& slopes, int64_t at, int64_t count) const {
    Pack<BFloat16, N> of[parts];
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const Parts<parts> slope = in_parts<parts>(slopes.at[k]);
#pragma unroll
      for (int part = 0; part < parts; ++part) of[part].at[k] = slope.at[part];
    }
#pragma unroll
    for (int part = 0; part < parts; ++part) cuda::store(of[part], tiles[part] + at, count);
    if (z) cuda::store(slopes, z + at, count);
  }
};

}  // namespace weft::cuda
