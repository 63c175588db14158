// SPDX-License-Identifier: Apache-2.0
// Half precision against its definition.
#include <cmath>
#include <limits>

#include "tests/support/catch.h"
#include "weft/engine/tensor/half.h"

using weft::Half;

namespace {

constexpr uint16_t sign = 0x8000, infinite = 0x7c00;

float value_of(uint32_t bits) {
  Half half;
  half.bits = static_cast<uint16_t>(bits);
  return half;
}

}  // namespace

TEST_CASE("every half has the value of its sign, exponent and fraction, and rounds to itself") {
  for (uint16_t bits = 0; bits < infinite; ++bits) {
    const int exponent = bits >> 10, fraction = bits & 0x3ff;
    const double size = std::ldexp(exponent > 0 ? 1024 + fraction : fraction, std::max(exponent, 1) - 25);
    REQUIRE(value_of(bits) == size);
    REQUIRE(value_of(bits | sign) == -size);
    REQUIRE(Half(value_of(bits)).bits == bits);
    REQUIRE(Half(value_of(bits | sign)).bits == (bits | sign));
  }
}

TEST_CASE("a value rounds to the nearest half, and to the even one of two") {
  for (uint16_t bits = 0; bits + 1 < infinite; ++bits) {
    const float middle = value_of(bits) + (value_of(bits + 1u) - value_of(bits)) / 2;
    REQUIRE(Half(std::nextafter(middle, 0.0f)).bits == bits);
    REQUIRE(Half(middle).bits == bits + bits % 2);
    REQUIRE(Half(-std::nextafter(middle, 65504.0f)).bits == (sign | (bits + 1)));
  }
}

TEST_CASE("halves are infinite from 65520 on, and NaN stays NaN") {
  CHECK(Half(std::nextafter(65520.0f, 0.0f)).bits == infinite - 1);
  for (const float large : {65520.0f, 65600.0f, 1e30f, std::numeric_limits<float>::infinity()}) {
    CHECK(Half(large).bits == infinite);
    CHECK(value_of(Half(-large).bits) == -std::numeric_limits<float>::infinity());
  }
  CHECK(std::isnan(float(Half(std::nanf("")))));
  CHECK(std::isnan(float(Half(-std::nanf("1")))));
}
