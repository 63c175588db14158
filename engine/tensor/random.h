// SPDX-License-Identifier: Apache-2.0
#pragma once
// Counter-based random numbers (Philox 4x32-10): draw i of a stream is a pure function of (seed, stream, i). Callers
// use the global index of an element or a sample as i, so that no result depends on the rank, the thread or the order.
#include <cstdint>

#include "weft/engine/maths/maths.h"

namespace weft {

// A stream of draws. `offset` is added to every index, so that a slice of a batch draws the same numbers as in the
// whole batch.
struct Random {
  uint64_t seed = 0, stream = 0, offset = 0;
  Random at(uint64_t further) const { return {seed, stream, offset + further}; }
  Random fork(uint64_t label) const;  // an independent stream for a named purpose
};

struct Words {
  uint32_t word[4];
};

WEFT_HD inline Words philox(uint64_t key, uint64_t low, uint64_t high) {
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  uint32_t c0 = static_cast<uint32_t>(low), c1 = static_cast<uint32_t>(low >> 32);
  uint32_t c2 = static_cast<uint32_t>(high), c3 = static_cast<uint32_t>(high >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * c0, p1 = uint64_t{0xCD9E8D57u} * c2;
    const uint32_t n0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0, n2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c1 = static_cast<uint32_t>(p1);
    c3 = static_cast<uint32_t>(p0);
    c0 = n0;
    c2 = n2;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

inline Random Random::fork(uint64_t label) const {
  const Words w = philox(stream ^ 0x66726f6bu, label, offset);
  return {seed, uint64_t{w.word[0]} << 32 | w.word[1], 0};
}

// Uniform in [0, 1), every value a multiple of 2^-24 (float) or 2^-53 (double), the same bits on every device.
template <class T> WEFT_HD T uniform_draw(Random key, uint64_t index);
template <> WEFT_HD inline float uniform_draw<float>(Random key, uint64_t index) {
  const uint64_t i = key.offset + index;
  return static_cast<float>(philox(key.seed, i >> 2, key.stream).word[i & 3] >> 8) * 0x1p-24f;
}
template <> WEFT_HD inline double uniform_draw<double>(Random key, uint64_t index) {
  const uint64_t i = key.offset + index;
  const Words w = philox(key.seed, i >> 1, key.stream);
  const uint64_t bits = uint64_t{w.word[(i & 1) * 2]} << 32 | w.word[(i & 1) * 2 + 1];
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

// A standard normal draw by Box and Muller. Each draw uses a counter of its own, in the upper half of the counters.
template <class T> WEFT_HD T normal_draw(Random key, uint64_t index) {
  const Words w = philox(key.seed, (key.offset + index) | uint64_t{1} << 63, key.stream);
  const double u = (static_cast<double>(w.word[0]) + 1) * 0x1p-32;  // (0, 1]
  const double v = static_cast<double>(w.word[1]) * 0x1p-32;
  return static_cast<T>(maths::sqrt(-2 * maths::log(u)) * maths::cos(6.283185307179586 * v));
}

}  // namespace weft
