// SPDX-License-Identifier: Apache-2.0
#pragma once
// Programs with mistakes, whose errors messages.cpp collects.
#include <chrono>
#include <vector>

#include "weft/collectives/placement_conversions.h"

namespace weft::documents {

// One rank.
struct Rank {
  Communicator& comm;
  const int me = comm.rank().value;
  Tape tape = {};
  Gradients gradients = {};

  // Its own values, and values that are equal on all ranks.
  Var leaf(const Shape& shape, DType dtype = DType::f32) {
    return tape.watch(Tensor::uniform(shape, {11, static_cast<uint64_t>(me)}, -1, 1, dtype));
  }
  Var equal(const Shape& shape) {
    return with_placement(tape.watch(Tensor::uniform(shape, {11, 0}, -1, 1, DType::f64)), comm, Placement::replicated);
  }
};

struct Mistake {
  int ranks;
  void (*make)(Rank& rank);
  bool debugged = false;  // under DebugRanks
  std::chrono::milliseconds deadline = std::chrono::seconds(20);
};
extern const std::vector<Mistake> mistakes;

}  // namespace weft::documents
