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

// The precision of scores. `rounding` is half a unit in the last place of 1.
struct Precision {
  double rounding, smallest, largest;
};
template <class T>
constexpr Precision precision_of = {std::numeric_limits<T>::epsilon() / 2, std::numeric_limits<T>::min(),
                                    std::numeric_limits<T>::max()};

// If the scores of two codes differ by more than this margin, the code with the larger score is nearer. A score is a
// sum of width + 1 products, in any order, and each rounding is at most a unit of |x| |c| + |c|^2. The margin covers
// the roundings of two scores and those of the f64 distances. `code_norm` is the largest of all codes. Norms may be off
// by one percent. The margin is infinite if a score might overflow.
WEFT_HD inline double score_margin(const Precision& precision, int64_t width, double row_norm, double code_norm) {
  constexpr double norm_tolerance = 1.03;
  const double reach = row_norm + code_norm, roundings = static_cast<double>(width) + 4;
  if (!(code_norm * reach * norm_tolerance < precision.largest / 4)) return std::numeric_limits<double>::infinity();
  return roundings * norm_tolerance *
         (2 * precision.rounding * code_norm * reach + precision_of<double>.rounding * reach * reach +
          2 * precision.smallest);
}

}  // namespace weft
