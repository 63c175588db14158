// SPDX-License-Identifier: Apache-2.0
#pragma once
// Blocks of a job's memory, which any rank takes and gives back. There are no locks, because a rank may die at any
// point. The pages of a block that is given back return to the system, and its offsets serve the next block of that
// size class.
#include "weft/collectives/transports/job/memory.h"
#include "weft/engine/tensor/pool.h"

namespace weft {

class Blocks {  // is itself in the job's memory
 public:
  explicit Blocks(Offset first) : used_(first) {}

  Offset take(const Memory& memory, size_t bytes);  // zeros, 64-byte aligned
  void give(const Memory& memory, Offset block);

  // A chain of blocks that are given back together; 0 if it is empty.
  using Chain = std::atomic<Offset>;
  static void add(const Memory& memory, Offset block, Chain& chain);
  void give_all(const Memory& memory, Chain& chain);

 private:
  struct Head;  // precedes each block
  static Head& head(const Memory& memory, Offset block);

  std::atomic<Offset> used_;
  std::array<std::atomic<uint64_t>, SizeClass::count> free_{};  // per size class: the block given back last, and a tag
};

}  // namespace weft
