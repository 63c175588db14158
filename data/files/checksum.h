// SPDX-License-Identifier: Apache-2.0
#pragma once
// XXH64 with seed 0: a 64-bit checksum that is as fast as memory. It detects accidental damage, not deliberate changes.
#include <array>
#include <cstddef>
#include <cstdint>

namespace weft {

class Checksum {
 public:
  static constexpr size_t stripe = 32;

  // Adds these bytes. Every call but the last must add whole stripes.
  void add(const void* bytes, size_t count);
  uint64_t value() const;

 private:
  std::array<uint64_t, 4> lanes_ = {0x60ea27eeadc0b5d6, 0xc2b2ae3d27d4eb4f, 0, 0x61c8864e7a143579};
  std::array<unsigned char, stripe> rest_;
  uint64_t total_ = 0;
};

uint64_t checksum(const void* bytes, size_t count);

}  // namespace weft
