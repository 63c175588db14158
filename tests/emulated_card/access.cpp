// SPDX-License-Identifier: Apache-2.0
#include "tests/emulated_card/access.h"

#include <array>
#include <cstdlib>
#include <iostream>
#include <sstream>

#include "tests/emulated_card/block.h"
#include "tests/emulated_card/fault.h"
#include "tests/emulated_card/races.h"

namespace weft::emulated {
namespace {

constexpr uintptr_t page = 4096;

// The running work of a thread, and the bytes in use that it has seen, by page.
struct Running {
  When when{0};
  Accessor accessor{};
  const char* name = "";
  bool is_kernel = false;
  std::array<Bounds, 64> seen{};
};
thread_local Running running;

void refuse(uintptr_t place, size_t bytes, bool writes, const std::string& why) {
  std::ostringstream text;
  text << running.name << (writes ? " writes " : " reads ") << bytes << " bytes at 0x" << std::hex << place << std::dec
       << ", " << why;
  if (running.is_kernel) text << " (block " << blockIdx.x << ", thread " << threadIdx.x << ")";
  report_fault(text.str());
}

void check_bounds(uintptr_t place, size_t bytes, bool writes) {
  Bounds& bounds = running.seen[place / page % running.seen.size()];
  if (place >= bounds.first && place + bytes <= bounds.last) return;
  const Seen seen = look(place, running.when);
  bounds = seen.bounds;
  if (place + bytes <= bounds.last) return;
  const auto [first, last] = bounds;
  const bool in_use = seen.objection.empty();
  refuse(place, bytes, writes,
         in_use ? std::to_string(place - first) + " bytes from the begin of " + std::to_string(last - first) + " bytes"
                : seen.objection);
}

void check_order(uintptr_t place, size_t bytes, bool writes) {
  running.accessor.block = running.is_kernel ? blockIdx.x : 0;
  const uint64_t earlier = note_access(running.accessor, place, bytes, writes);
  if (earlier == 0) return;
  refuse(place, bytes, writes,
         "which " + description(running.accessor, earlier) + " has accessed, and nothing orders the two");
}

}  // namespace

const char* running_work() { return running.name; }
void begin_work(const When& when, const Place& place) { running = {when, {place}}; }
void name_work(const char* name, bool is_kernel) {
  running.name = name;
  running.is_kernel = is_kernel;
}

void access(const void* memory, size_t bytes, bool writes) {
  if (!is_on_a_card(memory) || bytes == 0) return;
  const auto place = reinterpret_cast<uintptr_t>(memory);
  check_bounds(place, bytes, writes);
  check_order(place, bytes, writes);
}
void access_atomically(const void* memory, size_t bytes, bool writes) {
  if (is_on_a_card(memory)) check_bounds(reinterpret_cast<uintptr_t>(memory), bytes, writes);
}

}  // namespace weft::emulated

using namespace weft::emulated;

static constexpr int order = __ATOMIC_SEQ_CST;

template <class Value> static volatile Value* checked(volatile Value* at) {
  access_atomically(const_cast<Value*>(at), sizeof(Value), true);
  return at;
}

// What the compiler calls. It loads and stores values itself.
extern "C" {
void __tsan_init() {}
#define WEFT_ACCESSES(bytes)                                                                \
  void __tsan_read##bytes(void* place) { access(place, bytes, false); }                     \
  void __tsan_write##bytes(void* place) { access(place, bytes, true); }                     \
  void __tsan_volatile_read##bytes(void* place) { access_atomically(place, bytes, false); } \
  void __tsan_volatile_write##bytes(void* place) { access_atomically(place, bytes, true); }
WEFT_ACCESSES(1)
WEFT_ACCESSES(2)
WEFT_ACCESSES(4)
WEFT_ACCESSES(8)
WEFT_ACCESSES(16)
#undef WEFT_ACCESSES
void __tsan_read_range(void* place, size_t bytes) { access(place, bytes, false); }
void __tsan_write_range(void* place, size_t bytes) { access(place, bytes, true); }

// The card would stop here.
struct SourcePlace {
  const char* file;
  unsigned line, column;
};
[[noreturn]] void __ubsan_handle_type_mismatch_v1_abort(const SourcePlace* source, uintptr_t place) {
  std::cerr << source->file << ":" << source->line << ": " << running_work() << " accesses 0x" << std::hex << place
            << ", which is not aligned" << std::endl;
  std::abort();
}

void __tsan_vptr_update(void**, void*) {}
void __tsan_atomic_thread_fence(int) { __atomic_thread_fence(order); }

// Atomic accesses, which the compiler leaves to these.
#define WEFT_ATOMICS(bits, Value)                                                                                 \
  Value __tsan_atomic##bits##_load(const volatile Value* at, int) { return __atomic_load_n(checked(at), order); } \
  void __tsan_atomic##bits##_store(volatile Value* at, Value value, int) {                                        \
    __atomic_store_n(checked(at), value, order);                                                                  \
  }                                                                                                               \
  Value __tsan_atomic##bits##_exchange(volatile Value* at, Value value, int) {                                    \
    return __atomic_exchange_n(checked(at), value, order);                                                        \
  }                                                                                                               \
  Value __tsan_atomic##bits##_fetch_add(volatile Value* at, Value value, int) {                                   \
    return __atomic_fetch_add(checked(at), value, order);                                                         \
  }                                                                                                               \
  Value __tsan_atomic##bits##_fetch_sub(volatile Value* at, Value value, int) {                                   \
    return __atomic_fetch_sub(checked(at), value, order);                                                         \
  }                                                                                                               \
  int __tsan_atomic##bits##_compare_exchange_strong(volatile Value* at, Value* expected, Value value, int, int) { \
    return __atomic_compare_exchange_n(checked(at), expected, value, false, order, order);                        \
  }                                                                                                               \
  Value __tsan_atomic##bits##_compare_exchange_val(volatile Value* at, Value expected, Value value, int, int) {   \
    __atomic_compare_exchange_n(checked(at), &expected, value, false, order, order);                              \
    return expected;                                                                                              \
  }
WEFT_ATOMICS(8, uint8_t)
WEFT_ATOMICS(32, uint32_t)
WEFT_ATOMICS(64, uint64_t)
#undef WEFT_ATOMICS
}
