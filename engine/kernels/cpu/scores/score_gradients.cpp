// SPDX-License-Identifier: Apache-2.0
#include "weft/engine/kernels/cpu/scores/score_tiles.h"
#include "weft/engine/kernels/log_sums.h"
#include "weft/engine/kernels/scalar_ops.h"

namespace weft::cpu {
namespace {

template <class T> int64_t count_sums(ScoreSum kind, const ScoreMatrix<T>& s) {
  return s.m + (kind == ScoreSum::log_sum_exp_both ? s.n : 0);
}

// Replaces the scores of a tile by the derivatives with respect to them, d sums / dz times g.
template <class T> class Slopes {
 public:
  Slopes(ScoreSum kind, const ScoreMatrix<T>& s, const double* sums, const double* g)
      : way_(kind == ScoreSum::softplus      ? Way::softplus
             : kind == ScoreSum::log_sum_exp ? Way::rows
             : surely_small(s)               ? Way::small_both
                                             : Way::both),
        s_(s),
        sums_(sums),
        g_(g),
        count_(count_sums(kind, s)),
        shifts_(count_),
        factors_(count_) {
    for (int64_t i = 0; i < count_; ++i) {
      const auto [shift, factor] = shifted_slope<T>(g[i], way_ == Way::softplus ? 0 : sums[i]);
      shifts_[i] = shift;
      factors_[i] = way_ == Way::small_both ? factor * maths::exp(-shift) : factor;
    }
  }

  void operator()(const ScoreTile<T>& t) const {
    for (int64_t i = 0; i < t.rows; ++i) {
      T* const target = target_in(t, s_, i);
      if (target && way_ == Way::softplus) *target = -*target;
      row(t.columns, t.row + i, s_.m + t.column, t.at(i));
      if (target) *target = way_ == Way::softplus ? -*target : of_target(t.row + i);
    }
  }

 private:
  enum class Way : uint8_t { rows, both, small_both, softplus };

  void row(int64_t n, int64_t i, int64_t column, T* __restrict z) const {
    const T factor = factors_[i], shift = shifts_[i];
    const T *const of_column = factors_ + column, *const shift_of_column = shifts_ + column;
    switch (way_) {
      case Way::rows:
        for (int64_t j = 0; j < n; ++j) z[j] = factor * maths::exp(z[j] - shift);
        break;
      case Way::both:
        for (int64_t j = 0; j < n; ++j)
          z[j] = factor * maths::exp(z[j] - shift) + of_column[j] * maths::exp(z[j] - shift_of_column[j]);
        break;
      case Way::small_both:  // without shifts
        for (int64_t j = 0; j < n; ++j) z[j] = maths::exp(z[j]) * (factor + of_column[j]);
        break;
      case Way::softplus:
        for (int64_t j = 0; j < n; ++j) z[j] = factor * Sigmoid::of(z[j]);
        break;
    }
  }

  // Nearly zero if the target is nearly the whole sum. f32 would round this difference.
  T of_target(int64_t i) const {
    const auto slope = [&](int64_t of) { return slope_of_sum(g_[of], sums_[of], sums_[count_ + i]); };
    const double by_sums = way_ == Way::rows ? slope(i) : slope(i) + slope(s_.m + s_.targets[i]);
    return T(by_sums + g_[count_ + i]);
  }

  const Way way_;
  const ScoreMatrix<T>& s_;
  const double *const sums_, *const g_;
  const int64_t count_;                  // the number of sums; the scores of targets follow them
  const Temporary<T> shifts_, factors_;  // small_both needs no shifts
};

// Computes the gradients of q and k without the factor scale.
template <class T> class Gradients {
 public:
  Gradients(const Slopes<T>& slopes, const ScoreMatrix<T>& s, const ScoreSlopes<T>& to)
      : slopes_(slopes), s_(s), to_(to) {}

  void begin(int64_t column, int64_t columns) {
    if (to_.q) keys().pack(false, s_.d, columns, s_.k + column * s_.d, s_.d);
  }
  void visit(const ScoreTile<T>& t) {
    const int64_t d = s_.d;
    slopes_(t);
    if (to_.shift)
      for (int64_t i = 0; i < t.rows; ++i) shift_ += double(sum<T>(t.columns, t.at(i)));
    if (to_.q) gemm<T>(false, t.rows, t.values, t.stride, keys(), to_.q + t.row * d, d, {.accumulate = true});
    if (to_.k)
      gemm<T>(true, false, t.columns, d, t.rows, t.values, t.stride, s_.q + t.row * d, d, to_.k + t.column * d, d,
              {.accumulate = true});
  }
  void end(int64_t, int64_t) {}

  double shift() const { return shift_; }

 private:
  static PackedB<T>& keys() {
    thread_local PackedB<T> packed;
    return packed;
  }

  const Slopes<T>& slopes_;
  const ScoreMatrix<T>& s_;
  const ScoreSlopes<T> to_;
  double shift_ = 0;
};

}  // namespace

template <class T>
void score_gradients(ScoreSum kind, const ScoreMatrix<T>& s, const double* sums, const double* g,
                     const ScoreSlopes<T>& to) {
  const int64_t q_size = s.m * s.d, k_size = to.k ? s.n * s.d : 0;
  const bool by_scale_alone = to.scale && !to.q;
  const Temporary<T> unwanted(by_scale_alone ? q_size : 0);
  ScoreSlopes<T> into = to;
  if (by_scale_alone) into.q = unwanted;
  if (into.q) std::fill_n(into.q, q_size, T(0));
  std::fill_n(into.k, k_size, T(0));
  const Slopes<T> slopes(kind, s, sums, g);
  Gradients<T> gradients(slopes, s, into);
  for_each_tile(s, gradients);
  if (to.shift) *to.shift = T(gradients.shift());
  if (to.scale) {  // d scale = sum over rows of q (dz k), which is q times its gradient
    double total = 0;
    for (int64_t i = 0; i < s.m; ++i) total += double(dot<T>(s.d, s.q + i * s.d, into.q + i * s.d));
    *to.scale = T(total);
  }
  for (int64_t i = 0; i < (to.q ? q_size : 0); ++i) to.q[i] *= s.scale;
  for (int64_t i = 0; i < k_size; ++i) to.k[i] *= s.scale;
}

template void score_gradients(ScoreSum, const ScoreMatrix<float>&, const double*, const double*,
                              const ScoreSlopes<float>&);
template void score_gradients(ScoreSum, const ScoreMatrix<double>&, const double*, const double*,
                              const ScoreSlopes<double>&);

}  // namespace weft::cpu
