// SPDX-License-Identifier: Apache-2.0
#pragma once
// Short fractions, such as counts and ratios of two: what mistakes multiply by.
#include <string>

namespace weft::verify {

// The one with the smallest denominator that is so near, or the number itself if there is none.
double as_fraction(double x, double tolerance);
std::string fraction_text(double x);  // "3/2", "0.3517"

}  // namespace weft::verify
