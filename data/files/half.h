// SPDX-License-Identifier: Apache-2.0
#pragma once
// Numbers in f16, which Weft reads as f32: every one of them has its counterpart there.
#include <bit>
#include <cstdint>

namespace weft {

struct Half {
  uint16_t bits;
};

inline float value_of(Half half) {
  const uint32_t sign = (half.bits & 0x8000u) << 16, exponent = half.bits >> 10 & 31u, fraction = half.bits & 1023u;
  if (exponent == 0) return (sign ? -0x1p-24f : 0x1p-24f) * static_cast<float>(fraction);
  return std::bit_cast<float>(sign | (exponent == 31 ? 255 : exponent + 112) << 23 | fraction << 13);
}

}  // namespace weft
