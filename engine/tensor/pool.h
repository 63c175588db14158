// SPDX-License-Identifier: Apache-2.0
#pragma once
// A pool of host memory in size classes. Page faults and malloc cost as much as kernels do, so blocks are kept for
// reuse: after warm-up a training step takes all its blocks from the pool and none from the system.
//
// Each thread (a rank may be one) has its own free lists and needs no lock. If one thread allocates what another frees,
// lists that grow too long give half of their blocks to a store that all threads share.
#include <cstddef>
#include <cstdint>
#include <new>

namespace weft {

// The statistics of a device's pool. The peak is the sum of the threads' peaks, which is an upper bound.
struct MemoryStatistics {
  int64_t live_bytes = 0;
  int64_t peak_bytes = 0;
  int64_t system_calls = 0;
};

// There are eight size classes per doubling, so that at most an eighth of a block is unused. The smallest has 64 bytes.
struct SizeClass {
  static constexpr int count = 8 * (sizeof(size_t) == 8 ? 42 : 26);
  static int of(size_t bytes);
  static size_t bytes(int size_class);
};

namespace pool {

void* take(size_t bytes);  // 64-byte aligned
void give(void* block, size_t bytes);

// Without the pool: memory to give back by std::free, 64-byte aligned. Of 2 MiB and more, it asks for large pages: with
// those of 4 KiB, the lines of a block lie in the cache by chance, and a training of 5 GB begins with a million faults.
void* from_system(size_t bytes);

MemoryStatistics statistics();

// For standard containers that live as long as a tape.
template <class T> struct Allocator {
  using value_type = T;
  Allocator() = default;
  template <class U> Allocator(const Allocator<U>&) {}
  T* allocate(size_t n) { return static_cast<T*>(take(n * sizeof(T))); }
  void deallocate(T* p, size_t n) { give(p, n * sizeof(T)); }
  bool operator==(const Allocator&) const { return true; }
};

}  // namespace pool
}  // namespace weft
