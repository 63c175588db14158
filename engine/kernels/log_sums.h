// SPDX-License-Identifier: Apache-2.0
#pragma once
// The f64 arithmetic of the score kernels (engine/ops/scores.h) on a log-sum-exp and one of its scores, for every
// device. The two may be large and nearly equal: their difference is a loss, and 1 - e^(score - sum) its gradient.
#include <limits>

#include "weft/engine/maths/maths.h"

namespace weft {

// log(e^a + e^b), never less than either.
WEFT_HD inline double log_add_exp(double a, double b) {
  return a == b ? a + maths::log(2.0) : (a > b ? a : b) + maths::log1p_of_fraction(maths::exp(-maths::abs(a - b)));
}

// g times the derivative of a sum with respect to one of its scores; exactly g if that score is the whole sum.
WEFT_HD inline double slope_of_sum(double g, double sum, double score) {
  return sum == score ? g : g * maths::exp(score - sum);
}

// The same as factor e^(z - shift) for any score z of the sum, in the type and precision of the scores. An empty sum
// has no gradient.
template <class T> struct ShiftedSlope { T shift, factor; };
template <class T> WEFT_HD inline ShiftedSlope<T> shifted_slope(double g, double sum) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const T shift = sum == -infinity ? T(infinity) : T(sum);
  return {shift, T(slope_of_sum(g, sum == -infinity ? infinity : sum, double(shift)))};
}

}  // namespace weft
