// SPDX-License-Identifier: Apache-2.0
#pragma once
// Who has accessed the cards' memory last. Accesses of which one writes must be in an order: that of a stream, of an
// event that a stream waits for, or of a wait by the host. Blocks of one launch have none.
#include "tests/emulated_card/stream.h"

namespace weft::emulated {

// A block of a kernel, or other work on a stream.
struct Accessor {
  Place place{};
  unsigned block = 0;
};

// Notes an access. Returns the place of an earlier one that nothing orders before it, or zero.
uint64_t note_access(const Accessor& accessor, uintptr_t first, size_t bytes, bool writes);
std::string description(const Accessor& accessor, uint64_t earlier);

void forget_accesses(uintptr_t first, size_t bytes);  // of memory that is freed

}  // namespace weft::emulated
