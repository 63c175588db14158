// SPDX-License-Identifier: Apache-2.0
#include "weft/data/files/checksum.h"

#include <bit>
#include <cstring>

#include "weft/engine/tensor/error.h"

namespace weft {
namespace {

constexpr uint64_t prime1 = 0x9e3779b185ebca87, prime2 = 0xc2b2ae3d27d4eb4f, prime3 = 0x165667b19e3779f9,
                   prime4 = 0x85ebca77c2b2ae63, prime5 = 0x27d4eb2f165667c5;

template <class T> T word(const unsigned char* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

uint64_t round(uint64_t lane, uint64_t input) { return std::rotl(lane + input * prime2, 31) * prime1; }

}  // namespace

void Checksum::add(const void* bytes, size_t count) {
  require(total_ % stripe == 0, "checksum: a further piece after one of ", total_ % stripe, " bytes beyond a stripe");
  const auto* next = static_cast<const unsigned char*>(bytes);
  auto [a, b, c, d] = lanes_;  // in registers
  size_t left = count;
  for (; left >= stripe; left -= stripe, next += stripe) {
    a = round(a, word<uint64_t>(next));
    b = round(b, word<uint64_t>(next + 8));
    c = round(c, word<uint64_t>(next + 16));
    d = round(d, word<uint64_t>(next + 24));
  }
  lanes_ = {a, b, c, d};
  if (left > 0) std::memcpy(rest_.data(), next, left);
  total_ += count;
}

uint64_t Checksum::value() const {
  uint64_t sum = prime5;
  if (total_ >= stripe) {
    sum = std::rotl(lanes_[0], 1) + std::rotl(lanes_[1], 7) + std::rotl(lanes_[2], 12) + std::rotl(lanes_[3], 18);
    for (const uint64_t lane : lanes_) sum = (sum ^ round(0, lane)) * prime1 + prime4;
  }
  sum += total_;

  const unsigned char* next = rest_.data();
  const unsigned char* const end = next + total_ % stripe;
  for (; next + 8 <= end; next += 8) sum = std::rotl(sum ^ round(0, word<uint64_t>(next)), 27) * prime1 + prime4;
  if (next + 4 <= end) {
    sum = std::rotl(sum ^ word<uint32_t>(next) * prime1, 23) * prime2 + prime3;
    next += 4;
  }
  for (; next < end; ++next) sum = std::rotl(sum ^ *next * prime5, 11) * prime1;

  sum = (sum ^ sum >> 33) * prime2;
  sum = (sum ^ sum >> 29) * prime3;
  return sum ^ sum >> 32;
}

uint64_t checksum(const void* bytes, size_t count) {
  Checksum sum;
  sum.add(bytes, count);
  return sum.value();
}

}  // namespace weft
