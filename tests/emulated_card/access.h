// SPDX-License-Identifier: Apache-2.0
#pragma once
// What work on a stream reads and writes in the cards' memory. The compiler calls this before every load and store of
// a kernel, as for ThreadSanitizer; copies, cuBLAS and NCCL call it themselves.
#include <cstddef>

#include "tests/emulated_card/stream.h"

namespace weft::emulated {

// Begins work of this thread.
void begin_work(const When& when, const Place& place);
void name_work(const char* name, bool is_kernel = false);  // for messages
const char* running_work();

// A fault if these bytes are not in use, all in one piece, or if nothing orders this after an earlier access.
void access(const void* first, size_t bytes, bool writes);
void access_atomically(const void* first, size_t bytes, bool writes);  // needs no order

}  // namespace weft::emulated
