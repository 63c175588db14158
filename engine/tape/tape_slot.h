// SPDX-License-Identifier: Apache-2.0
#pragma once
// The reference from a Var to its tape. A slot is never freed. It serves one tape after another, each under a number of
// its own, by which a Var detects that its tape has been destroyed.
#include <atomic>
#include <cstdint>

namespace weft {

class Tape;

struct TapeSlot {
  std::atomic<uint32_t> number{0};  // atomic, because any thread may hold a Var of an earlier tape
  Tape* tape = nullptr;
  TapeSlot* next = nullptr;  // in the list of free slots

  static TapeSlot* take(Tape& tape);  // with the next number
  static void give(TapeSlot* slot);
};

}  // namespace weft
