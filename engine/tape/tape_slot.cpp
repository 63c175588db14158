// SPDX-License-Identifier: Apache-2.0
#include "weft/engine/tape/tape_slot.h"

#include <sys/single_threaded.h>

#include <mutex>
#include <utility>

#include "weft/engine/tensor/origin.h"

namespace weft {
namespace {

struct FreeSlots {
  std::mutex mutex;
  TapeSlot* first = nullptr;
  uint32_t last_number = 0;
};
FreeSlots& free_slots() {
  static FreeSlots& instance = *new FreeSlots;
  return instance;
}
// A program with a single thread needs no lock, which would cost as much as an op.
std::unique_lock<std::mutex> locked(FreeSlots& free) {
  return __libc_single_threaded ? std::unique_lock<std::mutex>() : std::unique_lock(free.mutex);
}

}  // namespace

TapeSlot* TapeSlot::take(Tape& tape) {
  FreeSlots& free = free_slots();
  const auto lock = locked(free);
  TapeSlot* slot = free.first ? std::exchange(free.first, free.first->next) : new TapeSlot;
  slot->tape = &tape;
  free.last_number = free.last_number % (Origin::any_tape - 1) + 1;
  slot->number.store(free.last_number, std::memory_order_relaxed);
  return slot;
}

void TapeSlot::give(TapeSlot* slot) {
  FreeSlots& free = free_slots();
  const auto lock = locked(free);
  slot->number.store(0, std::memory_order_relaxed);
  slot->next = std::exchange(free.first, slot);
}

}  // namespace weft
