#include "engine/backends/cpu/score_tiles.h"
#include "engine/scalar_ops.h"

namespace weft::cpu {
namespace {

template <class T> int64_t count_sums(ScoreSum kind, const ScoreMatrix<T>& s) {
  return s.m + (kind == ScoreSum::log_sum_exp_both ? s.n : 0);
}

// Turns the scores of a tile into the gradient by each of them, d sums / dz times g.
template <class T> class Slopes {
 public:
  Slopes(ScoreSum kind, const ScoreMatrix<T>& s, const T* sums, const T* g)
      : way_(kind == ScoreSum::softplus      ? Way::softplus
             : kind == ScoreSum::log_sum_exp ? Way::rows
             : surely_small(s)               ? Way::small_both
                                             : Way::both),
        g_(g),
        g_of_targets_(g + count_sums(kind, s)),
        sums_(count_sums(kind, s)),
        column_(s.m),
        targets_(s.targets) {
    // A sum over nothing has no gradient: e^(z - infinity) is zero.
    constexpr T infinity = std::numeric_limits<T>::infinity();
    for (int64_t i = 0; i < count_sums(kind, s); ++i) {
      const T sum = sums[i] == -infinity ? infinity : sums[i];
      sums_[i] = way_ == Way::small_both ? g[i] * maths::exp(-sum) : sum;
    }
  }

  void operator()(const ScoreTile<T>& t) const {
    for (int64_t i = 0; i < t.rows; ++i) {
      row(t.columns, t.row + i, column_ + t.column, t.at(i));
      if (!targets_) continue;
      if (const int64_t j = place(targets_[t.row + i], t.column, t.columns); j >= 0)
        t.at(i)[j] += g_of_targets_[t.row + i];
    }
  }

 private:
  enum class Way : uint8_t { rows, both, small_both, softplus };

  void row(int64_t n, int64_t i, int64_t column, T* __restrict z) const {
    const T g = g_[i], sum = sums_[i];
    const T *const of_column = g_ + column, *const sum_of_column = sums_ + column;
    switch (way_) {
      case Way::rows:
        for (int64_t j = 0; j < n; ++j) z[j] = g * maths::exp(z[j] - sum);
        break;
      case Way::both:
        for (int64_t j = 0; j < n; ++j)
          z[j] = g * maths::exp(z[j] - sum) + of_column[j] * maths::exp(z[j] - sum_of_column[j]);
        break;
      case Way::small_both:  // sums are g e^-sum here
        for (int64_t j = 0; j < n; ++j) z[j] = maths::exp(z[j]) * (sum + sum_of_column[j]);
        break;
      case Way::softplus:
        for (int64_t j = 0; j < n; ++j) z[j] = g * Sigmoid::of(z[j]);
        break;
    }
  }

  const Way way_;
  const T *const g_, *const g_of_targets_;
  const Temporary<T> sums_;
  const int64_t column_;  // where those of columns begin
  const int64_t* const targets_;
};

// q and k get their gradients without the factor scale.
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
void score_gradients(ScoreSum kind, const ScoreMatrix<T>& s, const T* sums, const T* g, const ScoreSlopes<T>& to) {
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

template void score_gradients(ScoreSum, const ScoreMatrix<float>&, const float*, const float*,
                              const ScoreSlopes<float>&);
template void score_gradients(ScoreSum, const ScoreMatrix<double>&, const double*, const double*,
                              const ScoreSlopes<double>&);

}  // namespace weft::cpu
