#pragma once
// Which of two codes is nearer to a row: decided alike on every device, in whatever order and precision most of the
// codes were ruled out. The distance of a row x and a code c is sum_p (x_p - c_p)^2 in f64, added up in ascending order
// of p. To rule codes out, scores x c - |c|^2 / 2 will do: the nearest code has the largest.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "engine/maths.h"  // WEFT_HD

namespace weft {

template <class T> WEFT_HD double squared_distance(const T* x, const T* code, int64_t width) {
  double sum = 0;
  for (int64_t p = 0; p < width; ++p) {
    const double difference = static_cast<double>(x[p]) - static_cast<double>(code[p]);
    sum = std::fma(difference, difference, sum);
  }
  return sum;
}

// What scores have been computed with: one unit in the last place of 1 is 2 `rounding`.
struct Precision {
  double rounding, smallest, largest;
};
template <class T>
constexpr Precision precision_of = {std::numeric_limits<T>::epsilon() / 2, std::numeric_limits<T>::min(),
                                    std::numeric_limits<T>::max()};

// Two codes whose scores are further apart than this are told apart by them. A score is a sum of width + 1 products, in
// any order, each rounding of which is at most a unit of |x| |c| + |c|^2; twice, and with what f64 rounds in the
// distances themselves. `code_norm` is the largest. Norms may be off by a hundredth. Infinite where a score might
// overflow.
WEFT_HD inline double score_margin(const Precision& precision, int64_t width, double row_norm, double code_norm) {
  constexpr double norms_may_be_off = 1.03;
  const double reach = row_norm + code_norm, roundings = static_cast<double>(width) + 4;
  if (!(code_norm * reach * norms_may_be_off < precision.largest / 4)) return std::numeric_limits<double>::infinity();
  return roundings * norms_may_be_off *
         (2 * precision.rounding * code_norm * reach + precision_of<double>.rounding * reach * reach +
          2 * precision.smallest);
}

}  // namespace weft
