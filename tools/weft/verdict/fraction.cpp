// SPDX-License-Identifier: Apache-2.0
#include "tools/weft/verdict/fraction.h"

#include <cmath>
#include <cstdio>

namespace weft::verify {
namespace {

// 0 if there is none.
int denominator(double x, double tolerance) {
  constexpr int most = 64;
  for (int below = 1; below <= most; ++below)
    if (std::abs(x - std::round(x * below) / below) <= tolerance) return below;
  return 0;
}

}  // namespace

double as_fraction(double x, double tolerance) {
  const int below = denominator(x, tolerance);
  return below == 0 ? x : std::round(x * below) / below;
}

std::string fraction_text(double x) {
  constexpr double rounding = 1e-12;
  const int below = denominator(x, rounding);
  char number[32];
  std::snprintf(number, sizeof number, "%.4g", below == 0 ? x : std::round(x * below) + 0.0);
  return below <= 1 ? number : number + ("/" + std::to_string(below));
}

}  // namespace weft::verify
