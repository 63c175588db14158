#pragma once
// What the kernels of scores (engine/ops/scores.h) do in f64 with a log-sum-exp and one of its scores, on every device.
// The two may be nearly equal, and large: what lies between them is a loss, and 1 - e^(score - sum) its gradient.
#include <limits>

#include "engine/maths.h"

namespace weft {

// log(e^a + e^b), never less than either.
WEFT_HD inline double log_add_exp(double a, double b) {
  return a == b ? a + maths::log(2.0) : (a > b ? a : b) + maths::log1p_of_fraction(maths::exp(-maths::abs(a - b)));
}

// g times the gradient of a sum by one of its scores: exactly g where that is all there is.
WEFT_HD inline double slope_of_sum(double g, double sum, double score) {
  return sum == score ? g : g * maths::exp(score - sum);
}

// The same for any score z in its own type, factor e^(z - shift), to that type's precision. A sum over nothing has no
// gradient.
template <class T> struct ShiftedSlope { T shift, factor; };
template <class T> WEFT_HD inline ShiftedSlope<T> shifted_slope(double g, double sum) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const T shift = sum == -infinity ? T(infinity) : T(sum);
  return {shift, T(slope_of_sum(g, sum == -infinity ? infinity : sum, double(shift)))};
}

}  // namespace weft
