// SPDX-License-Identifier: Apache-2.0
#pragma once
// Log-sum-exps of the columns of a matrix that comes in tiles of rows.
#include <limits>

#include "weft/engine/kernels/cuda/launch.cuh"

namespace weft::cuda {

template <class C> WEFT_HD C infinity() { return std::numeric_limits<C>::infinity(); }

// A sum of e^(z - shift), where the shift is the greatest z, or zero if that is not finite.
template <class C> WEFT_HD C shift_for(C greatest) { return maths::abs(greatest) < infinity<C>() ? greatest : C(0); }
template <class C> struct ColumnSums {
  C *greatest, *total;  // parts x n
};

// Columns alone would be too few threads, so the rows of a tile are divided into parts.
template <class C> struct SumColumns {
  static constexpr int64_t rows_of_part = 32;
  int64_t rows, n;
  const C* z;
  ColumnSums<C> of_parts;
  WEFT_HD void operator()(int64_t i) const {
    const auto [part, j] = split(i, n);
    const int64_t begin = part * rows_of_part, past = begin + rows_of_part, end = past < rows ? past : rows;
    C most = -infinity<C>(), sum = 0;
    for (int64_t row = begin; row < end; ++row) most = z[row * n + j] > most ? z[row * n + j] : most;
    const C shift = shift_for(most);
    for (int64_t row = begin; row < end; ++row) sum += maths::exp(z[row * n + j] - shift);
    of_parts.greatest[i] = most;
    of_parts.total[i] = sum;
  }
};
// Adds the parts of a tile to the sums of the tiles before.
template <class C> struct AddToColumns {
  int64_t parts, n;
  bool first;
  ColumnSums<C> of_parts, all;
  WEFT_HD void operator()(int64_t j) const {
    const C before = first ? -infinity<C>() : all.greatest[j];
    C most = before;
    for (int64_t i = j; i < parts * n; i += n) most = of_parts.greatest[i] > most ? of_parts.greatest[i] : most;
    const C shift = shift_for(most);
    C sum = first ? C(0) : rescaled(all.total[j], before, shift);
    for (int64_t i = j; i < parts * n; i += n) sum += rescaled(of_parts.total[i], of_parts.greatest[i], shift);
    all.greatest[j] = most;
    all.total[j] = sum;
  }
  // A sum without finite terms has no shift of its own.
  WEFT_HD static C rescaled(C total, C greatest, C shift) {
    return greatest == -infinity<C>() ? total : total * maths::exp(shift_for(greatest) - shift);
  }
};
template <class C> struct FinishColumns {
  ColumnSums<C> all;
  double* sums;
  WEFT_HD void operator()(int64_t j) const {
    sums[j] = double(shift_for(all.greatest[j])) + maths::log(double(all.total[j]));
  }
};

// The sums over the columns of all tiles so far.
template <class C> class Columns {
 public:
  explicit Columns(int64_t n) : n_(n), greatest_(n), total_(n) {}

  void add(int64_t row, int64_t rows, const C* scores) const {
    const int64_t parts = ceil_divide(rows, SumColumns<C>::rows_of_part);
    const Scratch<C> greatest(parts * n_), total(parts * n_);
    const ColumnSums<C> of_parts = {greatest.data(), total.data()};
    for_each(parts * n_, SumColumns<C>{rows, n_, scores, of_parts});
    for_each(n_, AddToColumns<C>{parts, n_, row == 0, of_parts, all()});
  }
  void finish(double* sums) const { for_each(n_, FinishColumns<C>{all(), sums}); }

 private:
  ColumnSums<C> all() const { return {greatest_.data(), total_.data()}; }

  const int64_t n_;
  const Scratch<C> greatest_, total_;
};

}  // namespace weft::cuda
