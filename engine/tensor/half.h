// SPDX-License-Identifier: Apache-2.0
#pragma once
// IEEE's half precision: 11 bits, from 2^-24 to 65504. Files hold it, and a card's tensor cores multiply it, exactly in
// f32. No tensor has this type.
#include <bit>
#include <cstdint>

#include "weft/engine/maths/format.h"  // WEFT_HD

namespace weft {

struct Half {
  uint16_t bits;
  Half() = default;
  // Rounds once, to nearest even.
  WEFT_HD explicit Half(float value) {
    const uint32_t word = std::bit_cast<uint32_t>(value), size = word & 0x7fffffffu;
    uint32_t half = (size + 0xfffu + (size >> 13 & 1u) - (other_bias << 23)) >> 13;
    if (size < 0x38800000u)  // 2^-14. The sum is rounded as a half is: the last bit of 0.5 is 2^-24
      half = std::bit_cast<uint32_t>(std::bit_cast<float>(size) + 0.5f) - std::bit_cast<uint32_t>(0.5f);
    else if (half > 0x7c00u)
      half = 0x7c00u;
    if (size > 0x7f800000u) half = 0x7e00u;  // NaN
    bits = static_cast<uint16_t>((word >> 16 & 0x8000u) | half);
  }
  WEFT_HD operator float() const {
    const uint32_t sign = (bits & 0x8000u) << 16, exponent = bits >> 10 & 31u, fraction = bits & 1023u;
    if (exponent == 0) return (sign ? -0x1p-24f : 0x1p-24f) * static_cast<float>(fraction);
    return std::bit_cast<float>(sign | (exponent == 31 ? 255 : exponent + other_bias) << 23 | fraction << 13);
  }

 private:
  static constexpr uint32_t other_bias = 127 - 15;  // what an exponent's is smaller by than that of f32
};

}  // namespace weft
