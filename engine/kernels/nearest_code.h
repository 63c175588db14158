// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which code is nearest to a row, with the same result on every device. The distance of a row x and a code c is
// sum_p (x_p - c_p)^2 in f64, summed in ascending order of p. The scores x c - |c|^2 / 2 first rule out most codes: the
// nearest code has the largest score. Their order and precision may differ between devices.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "weft/engine/maths/maths.h"  // WEFT_HD

namespace weft {

template <class T> WEFT_HD double squared_distance(const T* x, const T* code, int64_t width) {
  double sum = 0;
  for (int64_t p = 0; p < width; ++p) {
    const double difference = static_cast<double>(x[p]) - static_cast<double>(code[p]);
    sum = std::fma(difference, difference, sum);
  }
  return sum;
}

// The precision of scores, as relative errors: of a factor before it is multiplied, and of each product and sum.
struct Precision {
  double factor, rounding, smallest, largest;
};
template <class T>
constexpr Precision precision_of = {0, std::numeric_limits<T>::epsilon() / 2, std::numeric_limits<T>::min(),
                                    std::numeric_limits<T>::max()};
// Factors have 10 bits after the first, and may be truncated. Their products are exact. Tensor cores add four or more
// at a time to the sum, each truncated to 23 bits after the largest's first, and truncate that: 6 units for 4 terms.
constexpr Precision tf32 = {0x1p-10, 0x1p-22, std::numeric_limits<float>::min(), std::numeric_limits<float>::max()};

// A bound of a score's error. If the scores of two codes differ by more than both of their bounds, the code with the
// larger score is nearer. Factors that are off by f in proportion change a product by less than 2 f + f^2, and n
// roundings of r each change a sum by less than n r / (1 - n r) of the sum of magnitudes, in any order (Higham). The
// magnitudes of products sum to |x| |c| at most (Cauchy and Schwarz), so only roundings count by the width, and errors
// of factors do not. It covers the f64 distance, too, and norms that are off by one percent. It is infinite if a score
// might overflow.
class ScoreError {
 public:
  WEFT_HD ScoreError(const Precision& precision, int64_t width) : precision_(precision) {
    const double n = static_cast<double>(width) + 4, of_sum = n * precision.rounding;
    roundings_ = n;
    of_factors_ = (2 + precision.factor) * precision.factor;
    of_sum_ = of_sum < 0.5 ? (1 + of_factors_) * of_sum / (1 - of_sum) : infinity;
  }
  WEFT_HD double operator()(double row_norm, double code_norm) const {
    constexpr double norm_tolerance = 1.03;
    const double reach = row_norm + code_norm;
    if (!(code_norm * reach * norm_tolerance < precision_.largest / 4) || of_sum_ == infinity) return infinity;
    const double of_distance = roundings_ * precision_of<double>.rounding / 2 * reach * reach;
    return norm_tolerance * (of_factors_ * row_norm * code_norm + of_sum_ * code_norm * reach + of_distance +
                             roundings_ * (1 + reach) * precision_.smallest);
  }

 private:
  static constexpr double infinity = std::numeric_limits<double>::infinity();
  Precision precision_;
  double roundings_, of_factors_, of_sum_;
};

}  // namespace weft
