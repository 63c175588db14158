#pragma once
// Blocks of a job's memory, taken and given back by any of its ranks, without locks, because whoever held one might
// die. The pages of what is given back are the system's again; its place serves the next block of that size.
#include "collectives/transports/memory.h"
#include "engine/pool.h"

namespace weft {

class Blocks {  // lives in the memory
 public:
  explicit Blocks(Offset first) : used_(first) {}

  Offset take(const Memory& memory, size_t bytes);  // zeros, 64-byte aligned
  void give(const Memory& memory, Offset block);

  // A chain of blocks that are given back together. It begins as 0.
  using Chain = std::atomic<Offset>;
  static void add(const Memory& memory, Offset block, Chain& chain);
  void give_all(const Memory& memory, Chain& chain);

 private:
  struct Head;  // before each block
  static Head& head(const Memory& memory, Offset block);

  std::atomic<Offset> used_;
  std::array<std::atomic<uint64_t>, SizeClass::count> free_{};  // by size class: the last one given back, and a tag
};

}  // namespace weft
