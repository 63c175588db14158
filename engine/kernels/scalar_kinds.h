// SPDX-License-Identifier: Apache-2.0
#pragma once
// The types by which an elementwise formula is called. Its name is beside it, in scalar_ops.h, which only files include
// that name or compute one: few are compiled again when a formula is added or changed.
#include <cstdint>

namespace weft {

enum class Unary : uint8_t;
enum class Binary : uint8_t;
enum class Comparison : uint8_t;

// Constants of a unary formula: a slope, an exponent.
struct Scalars {
  double a = 0, b = 0;
};

}  // namespace weft
