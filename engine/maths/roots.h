// SPDX-License-Identifier: Apache-2.0
#pragma once
// Functions that the hardware rounds exactly, and the inverse square root.
#include <cmath>
#include <concepts>

#include "weft/engine/maths/format.h"

namespace weft::maths {

template <std::floating_point T> WEFT_HD inline T abs(T x) { return std::fabs(x); }
template <std::floating_point T> WEFT_HD inline T sqrt(T x) { return std::sqrt(x); }
template <std::floating_point T> WEFT_HD inline T rsqrt(T x) { return T(1) / std::sqrt(x); }

}  // namespace weft::maths
