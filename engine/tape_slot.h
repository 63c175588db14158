#pragma once
// How a Var knows its tape. A slot is never freed: it serves one tape after another, each with a number of its own, so
// that a Var which is kept for too long still finds out, by the number.
#include <atomic>
#include <cstdint>

namespace weft {

class Tape;

struct TapeSlot {
  std::atomic<uint32_t> number{0};  // read by whoever has a Var of an earlier tape, on any thread
  Tape* tape = nullptr;
  TapeSlot* next = nullptr;  // among those that are free

  static TapeSlot* take(Tape& tape);  // with the next number
  static void give(TapeSlot* slot);
};

}  // namespace weft
