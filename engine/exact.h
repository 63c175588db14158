#pragma once
// Sums whose bits depend on their terms alone: not on the order, nor on how terms are divided among ranks.
//
//   Tensor sum = Tensor::zeros(exact_shape(x.shape()), DType::f64);
//   for each term x, anywhere:  add_exactly(x, sum);
//   exact_total(sum, DType::f32);
//
// A term is cut into four f64 parts, multiples of 2^-8, 2^-40, 2^-72 and 2^-104, each of so few bits that f64 adds a
// million of them without rounding. So parts may be added in any order and by any means: scatter_add_rows, all_reduce.
// What is below 2^-105 of a term is lost, in the same way everywhere; a term of 2^24 or more is NaN. (Demmel and
// Nguyen, Fast Reproducible Floating-Point Summation, 2013, with fixed bins.)
#include <cmath>
#include <limits>

#include "engine/tensor.h"

namespace weft {

inline Shape exact_shape(const Shape& shape) { return shape.with_inserted(0, 4); }
Tensor exact_parts(const Tensor& x);                   // f64 (4, ...): the parts of a floating x
void add_exactly(const Tensor& x, Tensor& sum);        // sum += exact_parts(x), in one pass
Tensor exact_total(const Tensor& parts, DType dtype);  // what they add up to, rounded to f64 and to dtype

// The parts of one element, for CPU and CUDA.
struct ExactParts {
  double at[4];

  explicit WEFT_HD ExactParts(double term) {
    double rest = std::abs(term) < 0x1p24 ? term : std::numeric_limits<double>::quiet_NaN();
    double unit = 0x1p-8;
    for (double& part : at) {
      part = std::rint(rest / unit) * unit;
      rest -= part;
      unit *= 0x1p-32;
    }
  }
};

}  // namespace weft
