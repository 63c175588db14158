// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "weft/engine/kernels/cpu/scores/score_tiles.h"
#include "weft/engine/kernels/log_sums.h"
#include "weft/engine/kernels/scalar_ops.h"

namespace weft::cpu {
namespace {

template <class T> constexpr T infinity = std::numeric_limits<T>::infinity();

// log sum(e^z) as the sum of e^z, without a shift.
template <class T> class SmallSums {
 public:
  SmallSums(int64_t m, double* rows, double* columns) : m_(m), rows_(rows), columns_(columns) {
    std::fill_n(rows, m, 0.0);
  }

  void begin(int64_t, int64_t columns) { std::fill_n(total_, columns, T(0)); }
  void visit(const ScoreTile<T>& t) {
    alignas(vector_bytes) T of_tile[widest_tile] = {};
    for (int64_t i = 0; i < t.rows; ++i) {
      T* const z = t.at(i);
      for (int64_t j = 0; j < t.columns; ++j) {
        z[j] = maths::exp(z[j]);
        of_tile[j] += z[j];
      }
      rows_[t.row + i] += double(sum<T>(t.columns, z));
    }
    for (int64_t j = 0; j < t.columns; ++j) total_[j] += of_tile[j];
  }
  void end(int64_t column, int64_t columns) {
    if (!columns_) return;
    for (int64_t j = 0; j < columns; ++j) columns_[column + j] = maths::log(double(total_[j]));
  }
  void finish() {
    for (int64_t i = 0; i < m_; ++i) rows_[i] = maths::log(rows_[i]);
  }

 private:
  const int64_t m_;
  double *const rows_, *const columns_;  // columns may be null
  T total_[widest_tile];
};

// sum(e^(z - shift)). The shift is the greatest z so far, or zero if that is not finite.
template <class T> T finite(T x) { return maths::abs(x) < infinity<T> ? x : T(0); }
// The factor of the sum when the greatest z grows. Before the first z the sum is zero, or NaN.
template <class T> T factor(T before, T now) {
  const T ratio = maths::exp(finite(before) - finite(now));
  return before == -infinity<T> ? T(1) : ratio;
}
template <class T> double result(T greatest, double sum) { return double(finite(greatest)) + maths::log(sum); }

template <class T> class RunningSums {
 public:
  RunningSums(int64_t m, double* rows, double* columns) : m_(m), rows_(rows), columns_(columns), greatest_(m) {
    std::fill_n(rows, m, 0.0);
    std::fill_n(static_cast<T*>(greatest_), m, -infinity<T>);
  }

  void begin(int64_t, int64_t columns) {
    std::fill_n(total_, columns, T(0));
    std::fill_n(of_columns_, columns, -infinity<T>);
  }
  void visit(const ScoreTile<T>& t) {
    for (int64_t i = 0; i < t.rows; ++i) add_row(t.columns, t.at(i), greatest_[t.row + i], rows_[t.row + i]);
    if (columns_) add_columns(t);
  }
  void end(int64_t column, int64_t columns) {
    if (!columns_) return;
    for (int64_t j = 0; j < columns; ++j) columns_[column + j] = result(of_columns_[j], double(total_[j]));
  }
  void finish() {
    for (int64_t i = 0; i < m_; ++i) rows_[i] = result<T>(greatest_[i], rows_[i]);
  }

 private:
  static void add_row(int64_t n, const T* z, T& greatest, double& total) {
    Vector<T> most = broadcast(greatest);
    int64_t j = 0;
    for (; j + lanes<T> <= n; j += lanes<T>) {
      const Vector<T> next = load(z + j);
      most = next > most ? next : most;
    }
    const T before = greatest;
    for (int l = 0; l < lanes<T>; ++l) greatest = std::max(greatest, most[l]);
    for (; j < n; ++j) greatest = std::max(greatest, z[j]);
    const T shift = finite(greatest);
    alignas(vector_bytes) T e[widest_tile];
    for (j = 0; j < n; ++j) e[j] = maths::exp(z[j] - shift);
    total = total * double(factor(before, greatest)) + double(sum<T>(n, e));
  }
  void add_columns(const ScoreTile<T>& t) {
    alignas(vector_bytes) T greatest[widest_tile], of_tile[widest_tile] = {};
    std::copy_n(of_columns_, t.columns, greatest);
    for (int64_t i = 0; i < t.rows; ++i)
      for (int64_t j = 0; j < t.columns; ++j) greatest[j] = t.at(i)[j] > greatest[j] ? t.at(i)[j] : greatest[j];
    for (int64_t j = 0; j < t.columns; ++j) {
      total_[j] *= factor(of_columns_[j], greatest[j]);
      of_columns_[j] = greatest[j];
      greatest[j] = finite(greatest[j]);
    }
    for (int64_t i = 0; i < t.rows; ++i)
      for (int64_t j = 0; j < t.columns; ++j) of_tile[j] += maths::exp(t.at(i)[j] - greatest[j]);
    for (int64_t j = 0; j < t.columns; ++j) total_[j] += of_tile[j];
  }

  const int64_t m_;
  double *const rows_, *const columns_;  // columns may be null
  const Temporary<T> greatest_;          // of rows
  T of_columns_[widest_tile], total_[widest_tile];
};

template <class T> struct SoftplusSums {
  const ScoreMatrix<T>& s;
  double* rows;

  void begin(int64_t, int64_t) {}
  void visit(const ScoreTile<T>& t) {
    for (int64_t i = 0; i < t.rows; ++i) {
      T* const z = t.at(i);
      if (T* const target = target_in(t, s, i)) *target = -*target;
      for (int64_t j = 0; j < t.columns; ++j) z[j] = Softplus{}.f(z[j]);
      rows[t.row + i] += double(sum<T>(t.columns, z));
    }
  }
  void end(int64_t, int64_t) {}
};

// A pass over all scores but those of targets, which it writes out and adds to the sums last.
template <class T, class Pass> class WithTargets {
 public:
  WithTargets(const ScoreMatrix<T>& s, double* rows, double* columns, double* scores, Pass& pass)
      : s_(s), rows_(rows), columns_(columns), scores_(scores), pass_(pass) {
    if (s.targets) std::fill_n(scores, s.m, 0.0);
  }
  void begin(int64_t column, int64_t columns) { pass_.begin(column, columns); }
  void visit(const ScoreTile<T>& t) {
    for (int64_t i = 0; s_.targets && i < t.rows; ++i)
      if (T* const target = target_in(t, s_, i)) scores_[t.row + i] = double(std::exchange(*target, -infinity<T>));
    pass_.visit(t);
  }
  void end(int64_t column, int64_t columns) { pass_.end(column, columns); }
  void finish() {
    pass_.finish();
    for (int64_t i = 0; s_.targets && i < s_.m; ++i) {
      if (s_.targets[i] < 0) continue;
      rows_[i] = log_add_exp(rows_[i], scores_[i]);
      if (columns_) columns_[s_.targets[i]] = log_add_exp(columns_[s_.targets[i]], scores_[i]);
    }
  }

 private:
  const ScoreMatrix<T>& s_;
  double *const rows_, *const columns_, *const scores_;  // columns may be null
  Pass& pass_;
};

}  // namespace

template <class T> void score_sums(ScoreSum kind, const ScoreMatrix<T>& z, double* sums) {
  if (kind == ScoreSum::softplus) {
    std::fill_n(sums, z.m, 0.0);
    return for_each_tile(z, SoftplusSums<T>{z, sums});
  }
  const bool both = kind == ScoreSum::log_sum_exp_both;
  double* const columns = both ? sums + z.m : nullptr;
  const auto run = [&](auto pass) {
    WithTargets<T, decltype(pass)> all(z, sums, columns, sums + z.m + (both ? z.n : 0), pass);
    for_each_tile(z, all);
    all.finish();
  };
  if (surely_small(z))
    run(SmallSums<T>(z.m, sums, columns));
  else
    run(RunningSums<T>(z.m, sums, columns));
}

template void score_sums(ScoreSum, const ScoreMatrix<float>&, double*);
template void score_sums(ScoreSum, const ScoreMatrix<double>&, double*);

}  // namespace weft::cpu
