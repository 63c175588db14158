#pragma once
// Host memory that is handed out in size classes and kept for reuse: page faults and malloc cost as much as kernels do,
// so after warm-up a training step takes every block from here and none from the system.
//
// Each thread (a rank may be one) has its own free lists and needs no lock; lists that overflow because one thread
// allocates what another frees are evened out through a shared store.
#include <cstddef>
#include <cstdint>
#include <new>

namespace weft {

// What a device's pool did so far. Peaks are added over threads, an upper bound when ranks are threads.
struct MemoryStatistics {
  int64_t live_bytes = 0;
  int64_t peak_bytes = 0;
  int64_t system_calls = 0;
};

// Size classes: eight per doubling, so that at most an eighth of a block is unused; never below 64 bytes.
struct SizeClass {
  static constexpr int count = 8 * 42;
  static int of(size_t bytes);
  static size_t bytes(int size_class);
};

namespace pool {

void* take(size_t bytes);  // 64-byte aligned
void give(void* block, size_t bytes);
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
