// SPDX-License-Identifier: Apache-2.0
#include "tests/support/peak_memory.h"

#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>

#include "weft/engine/tensor/pool.h"

namespace {

std::atomic<int64_t> live = 0, peak = 0;

void* counted(void* block) {
  if (!block) throw std::bad_alloc();
  const int64_t now = live += static_cast<int64_t>(malloc_usable_size(block));
  int64_t most = peak;
  while (now > most && !peak.compare_exchange_weak(most, now)) continue;
  return block;
}

void give_back(void* block) {
  live -= static_cast<int64_t>(malloc_usable_size(block));
  std::free(block);
}

}  // namespace

void* operator new(size_t bytes) { return counted(std::malloc(bytes)); }
void* operator new(size_t bytes, std::align_val_t alignment) {
  const auto unit = static_cast<size_t>(alignment);
  return counted(std::aligned_alloc(unit, (bytes + unit - 1) / unit * unit));
}
void operator delete(void* block) noexcept { give_back(block); }
void operator delete(void* block, size_t) noexcept { give_back(block); }
void operator delete(void* block, std::align_val_t) noexcept { give_back(block); }
void operator delete(void* block, size_t, std::align_val_t) noexcept { give_back(block); }

namespace weft {

PeakMemory::PeakMemory() : before_(live), tensors_before_(pool::statistics().peak_bytes) { peak = before_; }

int64_t PeakMemory::bytes() const { return peak - before_ + pool::statistics().peak_bytes - tensors_before_; }

}  // namespace weft
