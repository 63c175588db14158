// SPDX-License-Identifier: Apache-2.0
#include "weft/engine/tensor/pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdlib>
#include <mutex>
#include <vector>

#include "weft/engine/tensor/out_of_memory.h"

namespace weft {

// Class 8d + s holds blocks of (8 + s) * 2^d * 8 bytes: 64, 72, ..., 120, 128, 144, ...
int SizeClass::of(size_t bytes) {
  const size_t units = (bytes < 64 ? 64 : bytes) - 1;  // a block of exactly a class's size belongs to that class
  const int doubling = static_cast<int>(std::bit_width(units)) - 7;
  if (doubling < 0) return 0;
  return doubling * 8 + static_cast<int>(units >> (doubling + 3)) - 8 + 1;
}
size_t SizeClass::bytes(int size_class) { return static_cast<size_t>(8 + size_class % 8) << (size_class / 8 + 3); }

namespace pool {
namespace {

constexpr size_t large_page = size_t{2} << 20;

struct Block {
  Block* next;
};
struct FreeList {
  Block* first = nullptr;
  int length = 0;
  void push(Block* block) {
    block->next = first;
    first = block;
    ++length;
  }
  Block* pop() {
    Block* block = first;
    if (block) {
      first = block->next;
      --length;
    }
    return block;
  }
};

// Written by one thread, read by any thread that calls statistics().
struct Counters {
  std::atomic<int64_t> live = 0, peak = 0, system_calls = 0;
  void add(int64_t bytes) {
    const int64_t now = live.load(std::memory_order_relaxed) + bytes;
    live.store(now, std::memory_order_relaxed);
    if (now > peak.load(std::memory_order_relaxed)) peak.store(now, std::memory_order_relaxed);
  }
};

class Cache;

// The store shared by all threads. It is never destroyed, because blocks may come back while the program ends.
struct Central {
  std::mutex mutex;
  FreeList lists[SizeClass::count];
  std::vector<Cache*> caches;
  MemoryStatistics finished;  // of threads that have ended
};
Central& central() {
  static Central& instance = *new Central;
  return instance;
}

// The free lists of one thread.
class Cache {
 public:
  Cache() {
    std::lock_guard lock(central().mutex);
    central().caches.push_back(this);
  }
  ~Cache() {
    Central& all = central();
    std::lock_guard lock(all.mutex);
    for (int c = 0; c < SizeClass::count; ++c)
      while (Block* block = lists_[c].pop()) all.lists[c].push(block);
    std::erase(all.caches, this);
    all.finished.live_bytes += counters.live;
    all.finished.peak_bytes += counters.peak;
    all.finished.system_calls += counters.system_calls;
  }
  void* take(int size_class) {
    const size_t bytes = SizeClass::bytes(size_class);
    counters.add(static_cast<int64_t>(bytes));
    if (Block* block = lists_[size_class].pop()) return block;
    {
      std::lock_guard lock(central().mutex);
      if (Block* block = central().lists[size_class].pop()) return block;
    }
    counters.system_calls.fetch_add(1, std::memory_order_relaxed);
    return from_system(bytes);
  }
  void give(void* block, int size_class) {
    counters.add(-static_cast<int64_t>(SizeClass::bytes(size_class)));
    FreeList& list = lists_[size_class];
    list.push(static_cast<Block*>(block));
    if (list.length > max_length(size_class)) share_half(list, size_class);
  }

  Counters counters;

 private:
  // A list holds up to 8 MiB, but always a few blocks.
  static int max_length(int size_class) {
    return static_cast<int>(std::clamp<size_t>((size_t{8} << 20) / SizeClass::bytes(size_class), 4, 1024));
  }
  void share_half(FreeList& list, int size_class) {
    std::lock_guard lock(central().mutex);
    for (int keep = max_length(size_class) / 2; list.length > keep;) central().lists[size_class].push(list.pop());
  }
  FreeList lists_[SizeClass::count];
};

// Statics may free blocks after this thread's cache has been destroyed. This flag needs no destructor, so it can still
// be read then.
thread_local bool cache_ended = false;
struct Owner {
  Cache cache;
  ~Owner() { cache_ended = true; }
};
Cache* cache() {
  if (cache_ended) return nullptr;
  thread_local Owner owner;
  return &owner.cache;
}

}  // namespace

void* from_system(size_t bytes) {
  const size_t alignment = bytes < large_page ? 64 : large_page;
  void* block = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (!block) throw OutOfMemory("memory: the system has no " + text(bytes) + " bytes left");
  // Only of whole pages, so that no memory is taken that nobody asked for. The kernel may refuse.
  madvise(block, bytes / large_page * large_page, MADV_HUGEPAGE);
  return block;
}

void* take(size_t bytes) {
  if (bytes > SizeClass::bytes(SizeClass::count - 1)) throw OutOfMemory("memory: nobody has " + text(bytes) + " bytes");
  const int size_class = SizeClass::of(bytes);
  if (Cache* mine = cache()) return mine->take(size_class);
  return from_system(SizeClass::bytes(size_class));
}

void give(void* block, size_t bytes) {
  const int size_class = SizeClass::of(bytes);
  if (Cache* mine = cache()) return mine->give(block, size_class);
  std::lock_guard lock(central().mutex);
  central().lists[size_class].push(static_cast<Block*>(block));
}

MemoryStatistics statistics() {
  Central& all = central();
  std::lock_guard lock(all.mutex);
  MemoryStatistics sum = all.finished;
  for (const Cache* cache : all.caches) {
    sum.live_bytes += cache->counters.live;
    sum.peak_bytes += cache->counters.peak;
    sum.system_calls += cache->counters.system_calls;
  }
  return sum;
}

}  // namespace pool
}  // namespace weft
