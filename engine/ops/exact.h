// SPDX-License-Identifier: Apache-2.0
#pragma once
// Sums whose bits depend only on their terms, neither on their order nor on their division among ranks.
//
//   Tensor sum = Tensor::zeros(exact_shape(x.shape()), DType::f64);
//   for each term x, anywhere:  add_exactly(x, sum);
//   exact_total(sum, DType::f32);
//
// A term is cut into four f64 parts, multiples of 2^-8, 2^-40, 2^-72 and 2^-104. Each part has so few bits that f64
// adds a million of them without rounding, so parts may be added in any order by any op, such as all_reduce. A
// remainder below 2^-105 is lost, in the same way everywhere; a term of 2^24 or more gives NaN. (Demmel and Nguyen,
// Fast Reproducible Floating-Point Summation, 2013, with fixed bins.)
#include "weft/engine/tensor/tensor.h"

namespace weft {

inline Shape exact_shape(const Shape& shape) { return shape.with_inserted(0, 4); }
void add_exactly(const Tensor& x, Tensor& sum);        // adds the parts of a floating x to an f64 (4, ...)
Tensor exact_total(const Tensor& parts, DType dtype);  // the sum of the parts, rounded to f64 and then to dtype

}  // namespace weft
