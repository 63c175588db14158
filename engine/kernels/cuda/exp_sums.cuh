// SPDX-License-Identifier: Apache-2.0
#pragma once
// Log-sum-exps in one pass: each value is read once, and the shift grows on the way.
#include <limits>

#include "weft/engine/kernels/cuda/tiles.cuh"

namespace weft::cuda {

template <class C> WEFT_HD C infinity() { return std::numeric_limits<C>::infinity(); }

// total = the sum of e^(z - shift), where the shift is the greatest z, or zero if that is not finite.
template <class C> struct ExpSum {
  C greatest, total;

  WEFT_HD static ExpSum empty() { return {-infinity<C>(), 0}; }
  WEFT_HD C shift() const { return maths::abs(greatest) < infinity<C>() ? greatest : C(0); }
  WEFT_HD void add(C z) {
    const C above = z - greatest;
    if (maths::abs(above) < infinity<C>()) {  // neither is infinite or NaN
      const C ratio = maths::exp(-maths::abs(above));
      total = above > 0 ? total * ratio + C(1) : total + ratio;
      greatest = above > 0 ? z : greatest;
    } else {
      add({z, z == -infinity<C>() ? C(0) : maths::exp(z - ExpSum{z, 0}.shift())});
    }
  }
  WEFT_HD void add(const ExpSum& other) {
    const ExpSum sum = {other.greatest > greatest ? other.greatest : greatest, 0};
    total = rescaled(sum.shift()) + other.rescaled(sum.shift());
    greatest = sum.greatest;
  }
  WEFT_HD double log() const { return double(shift()) + maths::log(double(total)); }

 private:
  // A sum without terms has no shift of its own.
  WEFT_HD C rescaled(C to) const { return greatest == -infinity<C>() ? total : total * maths::exp(shift() - to); }
};
struct Added {
  template <class C> __device__ ExpSum<C> operator()(ExpSum<C> a, const ExpSum<C>& b) const {
    a.add(b);
    return a;
  }
};
template <class C> __device__ ExpSum<C> swap_lanes(const ExpSum<C>& x, int distance) {
  return {swap_lanes(x.greatest, distance), swap_lanes(x.total, distance)};
}

// The sums over the columns of a matrix that comes in tiles. Columns alone would be too few threads, so the rows of a
// tile are divided into parts, whose sums go on in the next tile of these columns.
template <class C> struct AddColumns {
  static constexpr int N = pack_of<C>;
  static constexpr int64_t rows_of_part = 32;
  Tile tile;
  int64_t n;  // of all
  const C* z;
  ExpSum<C>* parts;  // x n
  __device__ void operator()(int64_t i) const {
    const auto [part, pack] = split(i, ceil_divide(tile.columns, N));
    const int64_t j = pack * N, count = tile.columns - j, begin = part * rows_of_part, past = begin + rows_of_part,
                  end = past < tile.rows ? past : tile.rows;
    ExpSum<C>* const own = parts + part * n + tile.column + j;
    ExpSum<C> sums[N];
#pragma unroll
    for (int k = 0; k < N; ++k) sums[k] = tile.row == 0 || k >= count ? ExpSum<C>::empty() : own[k];
    for (int64_t row = begin; row < end; ++row) {
      const Pack<C, N> values = load<N>(z + row * tile.columns + j, count);
#pragma unroll
      for (int k = 0; k < N; ++k) sums[k].add(values.at[k]);
    }
#pragma unroll
    for (int k = 0; k < N; ++k)
      if (k < count) own[k] = sums[k];
  }
};
template <class C> struct FinishColumns {
  int64_t count, n;
  const ExpSum<C>* parts;
  double* sums;
  __device__ void operator()(int64_t j) const {
    ExpSum<C> all = parts[j];
    for (int64_t part = 1; part < count; ++part) all.add(parts[part * n + j]);
    sums[j] = all.log();
  }
};

template <class C> class Columns {
 public:
  Columns(int64_t rows_of_tile, int64_t n)
      : count_(ceil_divide(rows_of_tile, AddColumns<C>::rows_of_part)), n_(n), parts_(count_ * n) {}

  void add(const Tile& tile, const C* scores) const {
    using Add = AddColumns<C>;
    const int64_t parts = ceil_divide(tile.rows, Add::rows_of_part);
    for_each(parts * ceil_divide(tile.columns, Add::N), Add{tile, n_, scores, parts_.data()});
  }
  void finish(double* sums) const { for_each(n_, FinishColumns<C>{count_, n_, parts_.data(), sums}); }

 private:
  const int64_t count_, n_;
  const Scratch<ExpSum<C>> parts_;
};

}  // namespace weft::cuda
