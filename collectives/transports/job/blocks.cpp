// SPDX-License-Identifier: Apache-2.0
#include "weft/collectives/transports/job/blocks.h"

#include <new>

namespace weft {
namespace {

constexpr size_t head_bytes = 64;

// A list is a word with the offset of its first block in units of 64 bytes, and a tag that increases with every change.
// The tag prevents the ABA problem: a rank that sees the same first block twice can tell whether the list has changed.
constexpr int place_bits = 40;
Offset place_of(uint64_t first) { return (first & ((uint64_t{1} << place_bits) - 1)) * head_bytes; }
uint64_t first_with(Offset block, uint64_t before) {
  return block / head_bytes | ((before >> place_bits) + 1) << place_bits;
}

}  // namespace

struct alignas(head_bytes) Blocks::Head {
  std::atomic<Offset> next;
  uint64_t bytes;
};

Blocks::Head& Blocks::head(const Memory& memory, Offset block) {
  static_assert(sizeof(Head) == head_bytes);
  return *reinterpret_cast<Head*>(memory.base() + block - head_bytes);
}

Offset Blocks::take(const Memory& memory, size_t bytes) {
  const int size_class = SizeClass::of(bytes);
  std::atomic<uint64_t>& list = free_[static_cast<size_t>(size_class)];
  for (uint64_t first = list.load(std::memory_order_acquire); place_of(first);) {
    const Offset block = place_of(first);
    const Offset next = head(memory, block).next.load(std::memory_order_relaxed);
    if (!list.compare_exchange_weak(first, first_with(next, first), std::memory_order_acq_rel)) continue;
    memory.reserve(block, bytes);
    head(memory, block).bytes = bytes;
    return block;
  }
  const size_t whole = (SizeClass::bytes(size_class) + head_bytes - 1) / head_bytes * head_bytes;
  const Offset begin = used_.fetch_add(head_bytes + whole);
  memory.reserve(begin, head_bytes + bytes);
  new (memory.base() + begin) Head{{}, bytes};
  return begin + head_bytes;
}

void Blocks::give(const Memory& memory, Offset block) {
  Head& given = head(memory, block);
  memory.forget(block, given.bytes);
  std::atomic<uint64_t>& list = free_[static_cast<size_t>(SizeClass::of(given.bytes))];
  uint64_t first = list.load(std::memory_order_relaxed);
  do {
    given.next.store(place_of(first), std::memory_order_relaxed);
  } while (!list.compare_exchange_weak(first, first_with(block, first), std::memory_order_acq_rel));
}

void Blocks::add(const Memory& memory, Offset block, Chain& chain) {
  Offset before = chain.load(std::memory_order_relaxed);
  do {
    head(memory, block).next.store(before, std::memory_order_relaxed);
  } while (!chain.compare_exchange_weak(before, block, std::memory_order_acq_rel));
}

// The chain itself may be in one of these blocks, so it is emptied first.
void Blocks::give_all(const Memory& memory, Chain& chain) {
  for (Offset block = chain.exchange(0, std::memory_order_acq_rel), next; block; block = next) {
    next = head(memory, block).next.load(std::memory_order_relaxed);
    give(memory, block);
  }
}

}  // namespace weft
