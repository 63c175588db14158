// SPDX-License-Identifier: Apache-2.0
#include "tools/weft/explain/fraction.h"

#include <cmath>
#include <cstdio>

namespace weft::verify {
namespace {

// 0 if there is none.
int denominator(double x, double tolerance) {
  constexpr int most = 64;
  for (int below = 1; below <= most; ++below)
    if (std::abs(x - std::round(x * below) / below) <= tolerance) return below;
  constexpr int largest_scale = 1 << 24;  // of a loss, a power of two
  for (int below = 2 * most; below <= largest_scale; below *= 2)
    if (std::abs(x - 1.0 / below) <= tolerance) return below;
  return 0;
}

}  // namespace

double as_fraction(double x, double tolerance) {
  constexpr double few = 8;  // larger numbers may be many whole ones, and smaller ones than its inverse many fractions
  const double power = std::exp2(std::round(std::log2(std::abs(x))));
  const bool small = std::abs(x) < 1 / few && std::abs(x) > tolerance;
  if ((std::abs(x) > few || small) && std::abs(std::abs(x) - power) <= tolerance) return std::copysign(power, x);
  const int below = denominator(x, tolerance);
  return below == 0 ? x : std::round(x * below) / below;
}

std::string fraction_text(double x) {
  constexpr double rounding = 1e-12;
  const int below = denominator(x, rounding);
  char number[32];
  if (below == 0)
    std::snprintf(number, sizeof number, "%.4g", x);
  else
    std::snprintf(number, sizeof number, "%.15g", std::round(x * below) + 0.0);
  return below <= 1 ? number : number + ("/" + std::to_string(below));
}

}  // namespace weft::verify
