// SPDX-License-Identifier: Apache-2.0
#pragma once
// Verbs that only move values ignore their type. They move the widest words that all addresses and lengths allow.
#include <bit>

#include "weft/engine/kernels/cuda/launch.cuh"

namespace weft::cuda {

struct alignas(16) Quad {
  uint64_t low, high;
  WEFT_HD bool operator==(const Quad& other) const { return ((low ^ other.low) | (high ^ other.high)) == 0; }
};

// The addresses, run lengths and strides of a move, in bytes. The size of the widest word divides all of them.
class Grain {
 public:
  Grain& with(const void* address) { return with(static_cast<int64_t>(reinterpret_cast<uintptr_t>(address))); }
  Grain& with(int64_t bytes) {
    all_ |= static_cast<uint64_t>(bytes);
    return *this;
  }
  // Calls run.template operator()<Word>().
  template <class F> void visit(F&& run) const {
    switch (std::countr_zero(all_ | 16)) {
      case 0: return run.template operator()<uint8_t>();
      case 1: return run.template operator()<uint16_t>();
      case 2: return run.template operator()<uint32_t>();
      case 3: return run.template operator()<uint64_t>();
      default: return run.template operator()<Quad>();
    }
  }

 private:
  uint64_t all_ = 0;
};

// An address or a number of bytes in words.
template <class Word> const Word* in_words(const void* address) { return static_cast<const Word*>(address); }
template <class Word> Word* in_words(void* address) { return static_cast<Word*>(address); }
template <class Word> int64_t in_words(int64_t bytes) { return bytes / static_cast<int64_t>(sizeof(Word)); }

}  // namespace weft::cuda
