// SPDX-License-Identifier: Apache-2.0
#pragma once
// f32 rows as sums of two halves, which have 22 bits of a value. Of the four products of two such sums three are
// enough: the last one is smaller than the rounding of a sum of f32 products.
//
// All values of a matrix are first multiplied by the power of two that brings the greatest one to about 2^14. What a
// half then cannot hold is less than 2^-38 of that one.
#include "weft/engine/kernels/cuda/launch.cuh"

namespace weft::cuda {

// The greatest size in each row; infinite and NaN values do not count.
struct GreatestSize {
  int64_t width;
  const float* x;
  float* y;
  struct Larger {
    __device__ float operator()(float a, float b) const { return a > b ? a : b; }
  };
  template <class Team> __device__ void operator()(Team team, int64_t row) const {
    float greatest = 0;
    const auto visit = [&](int64_t, float value) {
      greatest = Larger{}(value - value == 0 ? maths::abs(value) : 0, greatest);
    };
    for_each_value(team, width, visit, x + row * width);
    greatest = team.reduce(greatest, Larger{});
    if (team.lane() == 0) y[row] = greatest;
  }
};

// The power of two that brings a size to 2^14 or more, and less than 2^15; 1 for zero.
WEFT_HD inline double to_halves(float greatest) {
  constexpr uint64_t bias = 1023, wanted = 14;
  const uint64_t exponent = std::bit_cast<uint64_t>(double(greatest)) >> 52;
  return greatest == 0 ? 1 : std::bit_cast<double>((2 * bias + wanted - exponent) << 52);
}

constexpr int halves_of_row = 3;
struct InHalves {
  int64_t width;
  bool rest[halves_of_row];  // what each of the copies of a row holds: the rests, or the values rounded to halves
  const float *greatest, *x;
  Half* y;
  __device__ void operator()(int64_t i) const {
    const auto [row, column] = split(i, width);
    const float value = static_cast<float>(double(x[i]) * to_halves(*greatest));
    const Half rounded(value), left(value - value == 0 ? value - float(rounded) : 0);
    for (int k = 0; k < halves_of_row; ++k) y[(row * halves_of_row + k) * width + column] = rest[k] ? left : rounded;
  }
};

// Each row three times, one after the other, so that the product of a row of rests_first with one of rests_second is
// the sum of the three products, the smallest ones first.
class RowsInHalves {
 public:
  static RowsInHalves rests_first(const Tensor& x) { return RowsInHalves(x, true); }
  static RowsInHalves rests_second(const Tensor& x) { return RowsInHalves(x, false); }

  int64_t width() const { return halves_of_row * width_; }
  const Half* row(int64_t i) const { return rows_.data() + i * width(); }
  const float* greatest() const { return greatest_.data(); }

 private:
  RowsInHalves(const Tensor& x, bool first) : width_(x.shape()[1]), greatest_(1), rows_(x.size() * halves_of_row) {
    const int64_t rows = x.shape()[0];
    const Scratch<float> of_rows(rows);
    for_each_row(rows, width_, GreatestSize{width_, x.data<float>(), of_rows.data()});
    for_each_row(1, rows, GreatestSize{rows, of_rows.data(), greatest_.data()});
    for_each(x.size(), InHalves{width_, {first, !first, false}, greatest(), x.data<float>(), rows_.data()});
  }

  const int64_t width_;
  const Scratch<float> greatest_;
  const Scratch<Half> rows_;
};

// Factors of the products of two such matrices (products.h), which undo their powers of two.
struct FactorsOfHalves {
  const float *scale, *left, *right;
  float* factors;
  WEFT_HD void operator()(int64_t i) const {
    factors[i] = i == 0 ? static_cast<float>(double(*scale) / to_halves(*left) / to_halves(*right)) : 0;
  }
};

}  // namespace weft::cuda
