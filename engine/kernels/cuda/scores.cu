// SPDX-License-Identifier: Apache-2.0
// Sums over scores and their gradients. cuBLAS multiplies as many rows of q with all of k as fit into a tile; then one
// or two kernels process the tile. The host never reads scores, so nothing waits for the card.
#include "weft/engine/kernels/cuda/column_sums.cuh"
#include "weft/engine/kernels/cuda/cuda_backend.h"
#include "weft/engine/kernels/log_sums.h"
#include "weft/engine/kernels/scalar_ops.h"

namespace weft {
namespace cuda {
namespace {

constexpr int64_t tile_bytes = int64_t{64} << 20;  // at least one row

template <class C> struct FromProducts {
  const C *scale, *shift;  // shift may be null
  __device__ C operator()(C product) const { return *scale * product + (shift ? *shift : C(0)); }
};

template <class C> struct Exclude {
  int64_t n, per_row;
  const int64_t* columns;
  C* z;
  WEFT_HD void operator()(int64_t i) const {
    if (columns[i] >= 0) z[i / per_row * n + columns[i]] = -infinity<C>();
  }
};

// The scores of the targets, one of each row. They are added to their rows' sums last, in f64; see
// engine/kernels/cpu/scores/score_kernels.h.
template <class C> struct TakeTargets {
  int64_t n;
  const int64_t* targets;
  C* z;
  double* scores;
  WEFT_HD void operator()(int64_t i) const {
    scores[i] = targets[i] < 0 ? 0 : double(z[i * n + targets[i]]);
    if (targets[i] >= 0) z[i * n + targets[i]] = -infinity<C>();
  }
};
struct AddTargets {
  const int64_t* targets;
  const double* scores;
  double* sums;
  WEFT_HD void operator()(int64_t i) const {
    if (targets[i] >= 0) sums[i] = log_add_exp(sums[i], scores[i]);
  }
};
template <class C> struct NegateTargets {
  int64_t n;
  const int64_t* targets;
  C* z;
  WEFT_HD void operator()(int64_t i) const {
    if (targets[i] >= 0) z[i * n + targets[i]] = -z[i * n + targets[i]];
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
template <ScoreSum kind, class C> struct Slopes {
  int64_t n;
  const C *shifts, *factors;                        // of the tile's rows
  const C *shifts_of_columns, *factors_of_columns;  // for log_sum_exp_both
  C* z;
  WEFT_HD void operator()(int64_t i) const {
    const auto [row, column] = split(i, n);
    const C value = z[i];
    if constexpr (kind == ScoreSum::softplus)
      z[i] = factors[row] * Sigmoid::of(value);
    else
      z[i] = factors[row] * maths::exp(value - shifts[row]);
    if constexpr (kind == ScoreSum::log_sum_exp_both)
      z[i] += factors_of_columns[column] * maths::exp(value - shifts_of_columns[column]);
  }
};
template <class C> struct SlopesOfTargets {  // nearly zero if the target is nearly the whole sum
  int64_t n;
  const int64_t* targets;
  const double *sums, *g, *scores, *g_of_scores;  // of the tile's rows
  const double *sums_of_columns, *g_of_columns;   // or null
  C* z;
  WEFT_HD void operator()(int64_t i) const {
    const int64_t j = targets[i];
    if (j < 0) return;
    double total = slope_of_sum(g[i], sums[i], scores[i]) + g_of_scores[i];
    if (g_of_columns) total += slope_of_sum(g_of_columns[j], sums_of_columns[j], scores[i]);
    z[i * n + j] = C(total);
  }
};

template <class F> void visit_wide(DType type, const F& f) {
  type == DType::f64 ? f.template operator()<double>() : f.template operator()<float>();
}

// The inputs of the scores, bf16 ones as f32, and the tile that their scores fill, some rows at a time.
class Tiles {
 public:
  Tiles(Backend& device, const Scores& z)
      : q(wide(z.q)),
        k(wide(z.k)),
        scale(wide(z.scale)),
        targets(z.targets ? *z.targets : Tensor()),
        device_(device),
        shift_(z.shift ? wide(*z.shift) : Tensor()),
        excluded_(z.excluded ? *z.excluded : Tensor()) {}

  const Tensor q, k, scale, targets;  // targets may be undefined

  int64_t m() const { return q.shape()[0]; }
  int64_t n() const { return k.shape()[0]; }
  bool empty() const { return m() == 0 || n() == 0; }

  // Calls visit(row, scores) for all rows, with as many rows at a time as fit into the tile.
  template <class Visit> void for_each(const Visit& visit) const {
    const int64_t fitting = tile_bytes / (n() * static_cast<int64_t>(size_of(q.dtype())));
    const int64_t height = std::clamp<int64_t>(fitting, 1, m());
    const Tensor memory({height, n()}, q.dtype(), Device::cuda);
    for (int64_t row = 0; row < m(); row += height) {
      Tensor scores = memory.slice(0, std::min(height, m() - row));
      const Tensor rows = q.slice(row, row + scores.shape()[0]);
      device_.matmul(rows, false, k, true, {}, scores);
      visit_wide(q.dtype(), [&]<class C>() { finish<C>(row, scores); });
      visit(row, scores);
    }
  }

 private:
  static Tensor wide(const Tensor& x) { return x.dtype() == DType::bf16 ? x.to(DType::f32) : x; }

  template <class C> void finish(int64_t row, Tensor& scores) const {
    C* const z = scores.mutate<C>();
    map(scores.size(), FromProducts<C>{scale.data<C>(), shift_.data<C>()}, z, static_cast<const C*>(z));
    if (!excluded_.defined()) return;
    const int64_t per_row = excluded_.shape()[1];
    const int64_t* const columns = excluded_.data<int64_t>() + row * per_row;
    cuda::for_each(scores.shape()[0] * per_row, Exclude<C>{n(), per_row, columns, z});
  }

  Backend& device_;
  const Tensor shift_, excluded_;
};

// Replaces the scores of a tile by the derivatives with respect to them.
template <class C> class SlopesOf {
 public:
  SlopesOf(ScoreSum kind, const Tiles& tiles, const Tensor& sums, const Tensor& g)
      : kind_(kind),
        tiles_(tiles),
        sums_(sums.data<double>()),
        g_(g.data<double>()),
        count_(tiles.m() + (kind == ScoreSum::log_sum_exp_both ? tiles.n() : 0)),
        shifts_(count_),
        factors_(count_) {
    for_each(count_, PrepareSlopes<C>{kind != ScoreSum::softplus, sums_, g_, shifts_.data(), factors_.data()});
  }

  void operator()(int64_t row, Tensor& scores) const {
    const int64_t m = tiles_.m(), n = tiles_.n(), rows = scores.shape()[0];
    C* const z = scores.mutate<C>();
    const int64_t* const targets = tiles_.targets.defined() ? tiles_.targets.data<int64_t>() + row : nullptr;
    const auto run = [&]<ScoreSum k>() {
      const C *const shifts = shifts_.data(), *const factors = factors_.data();
      for_each(scores.size(), Slopes<k, C>{n, shifts + row, factors + row, shifts + m, factors + m, z});
    };
    using enum ScoreSum;
    if (kind_ == softplus) {
      if (targets) for_each(rows, NegateTargets<C>{n, targets, z});
      run.template operator()<softplus>();
      if (targets) for_each(rows, NegateTargets<C>{n, targets, z});
      return;
    }
    const bool both = kind_ == log_sum_exp_both;
    both ? run.template operator()<log_sum_exp_both>() : run.template operator()<log_sum_exp>();
    if (targets)
      for_each(rows, SlopesOfTargets<C>{n, targets, sums_ + row, g_ + row, sums_ + count_ + row, g_ + count_ + row,
                                        both ? sums_ + m : nullptr, both ? g_ + m : nullptr, z});
  }

 private:
  const ScoreSum kind_;
  const Tiles& tiles_;
  const double *const sums_, *const g_;
  const int64_t count_;  // the number of sums; the scores of targets follow them
  const Scratch<C> shifts_, factors_;
};

}  // namespace
}  // namespace cuda

void CudaBackend::score_sums(ScoreSum kind, const Scores& z, Tensor& sums) {
  const cuda::Tiles tiles(*this, z);
  const bool both = kind == ScoreSum::log_sum_exp_both;
  const int64_t m = tiles.m(), n = tiles.n(), first_target = m + (both ? n : 0);
  const bool softplus = kind == ScoreSum::softplus;
  Tensor of_targets = sums.slice(first_target, sums.size());
  fill(softplus ? 0 : -std::numeric_limits<double>::infinity(), sums);
  fill(0, of_targets);
  if (tiles.empty()) return;
  cuda::visit_wide(tiles.q.dtype(), [&]<class C>() {
    const cuda::Columns<C> columns(both ? n : 0);
    double* const to = sums.mutate<double>();
    tiles.for_each([&](int64_t row, Tensor& scores) {
      const int64_t rows = scores.shape()[0];
      C* const values = scores.mutate<C>();
      const int64_t* const targets = tiles.targets.defined() ? tiles.targets.data<int64_t>() + row : nullptr;
      Tensor of_rows = sums.slice(row, row + rows);
      if (softplus) {
        if (targets) cuda::for_each(rows, cuda::NegateTargets<C>{n, targets, values});
        unary(Unary::Softplus, {}, scores, scores);
        Tensor narrow({rows}, scores.dtype(), Device::cuda);
        reduce(Reduction::sum, scores, Along(rows, n, 1), narrow);
        return cast(narrow, of_rows);
      }
      if (both) columns.add(row, rows, values);
      if (targets) cuda::for_each(rows, cuda::TakeTargets<C>{n, targets, values, to + first_target + row});
      log_sum_exp_rows(scores, of_rows);
      if (targets) cuda::for_each(rows, cuda::AddTargets{targets, to + first_target + row, to + row});
    });
    if (both) columns.finish(to + m);
  });
}

void CudaBackend::score_gradients(ScoreSum kind, const Scores& z, const Tensor& sums, const Tensor& g,
                                  ScoreGradients& to) {
  const cuda::Tiles tiles(*this, z);
  const Tensor &q = tiles.q, &k = tiles.k, &scale = tiles.scale;
  const auto zeros = [&](const Shape& shape) { return Tensor::zeros(shape, q.dtype(), Device::cuda); };
  Tensor dq = zeros(q.shape()), dk = zeros(k.shape()), dshift = zeros({}), part = zeros({}), term = Tensor::like(dk);
  const auto walk = [&](const auto& slopes) {
    tiles.for_each([&](int64_t row, Tensor& scores) {
      const int64_t end = row + scores.shape()[0];
      slopes(row, scores);
      Tensor rows = dq.slice(row, end);
      if (to.q.defined() || to.scale.defined()) matmul(scores, false, k, false, {}, rows);
      if (to.k.defined()) {
        matmul(scores, true, q.slice(row, end), false, {}, term);
        accumulate(1, term, dk);
      }
      if (to.shift.defined()) {
        reduce(Reduction::sum, scores, Along(1, scores.size(), 1), part);
        accumulate(1, part, dshift);
      }
    });
  };
  if (!tiles.empty()) cuda::visit_wide(q.dtype(), [&]<class C>() { walk(cuda::SlopesOf<C>(kind, tiles, sums, g)); });
  if (to.shift.defined()) cast(dshift, to.shift);
  if (to.scale.defined()) {  // d scale = sum over rows of q (dz k), where dz k is dq before scaling
    Tensor products = Tensor::like(q);
    binary(Binary::Multiply, q, dq, products);
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
