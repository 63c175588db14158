// SPDX-License-Identifier: Apache-2.0
#pragma once
// Sums of two doubles, the second below the last place of the first. They have 106 bits, for intermediate results that
// need more precision than double. (Dekker 1971, Knuth; products by FMA.)
#include <cmath>

#include "weft/engine/maths/format.h"

namespace weft::maths::detail {

struct DoubleDouble {
  double high, low;
};

// a + b, exactly.
WEFT_HD inline DoubleDouble sum(double a, double b) {
  const double high = a + b, from_b = high - a, from_a = high - from_b;
  return {high, (a - from_a) + (b - from_b)};
}

// The same in half of the operations, for |a| >= |b| or a = 0.
WEFT_HD inline DoubleDouble sum_from_larger(double a, double b) {
  const double high = a + b;
  return {high, b - (high - a)};
}

// a b, exactly unless it underflows.
WEFT_HD inline DoubleDouble product(double a, double b) {
  const double high = a * b;
  return {high, std::fma(a, b, -high)};
}

WEFT_HD inline DoubleDouble product(DoubleDouble a, DoubleDouble b) {
  const auto [high, low] = product(a.high, b.high);
  return {high, std::fma(a.high, b.low, std::fma(a.low, b.high, low))};
}

}  // namespace weft::maths::detail
