// SPDX-License-Identifier: Apache-2.0
#pragma once
// Ops that pack tensors into flat memory and unpack them, so that one collective can gather or reduce them together.
// Both are differentiable.
#include <functional>
#include <span>
#include <vector>

#include "weft/engine/tape/tape.h"

namespace weft {

// The positions of several tensors in flat memory of `size` elements, in ascending order.
struct Packing {
  struct Slot {
    int64_t begin;
    Shape shape;
    int64_t end() const { return begin + shape.size(); }
  };
  std::vector<Slot> slots;
  int64_t size = 0;
  std::function<StorageHandle(size_t bytes)> allocate = {};  // of packed memory; if undefined, the device's pool
};

// Packs tensors, with zeros between them and for undefined Vars. The packing must outlive the tape, here and in unpack.
Var pack(std::span<const Var> parts, const Packing& packing);

// Returns views of the same memory. Backward packs the gradients once, after the last one has arrived, and calls
// `reached` for each part that has one.
Vars unpack(const Var& flat, const Packing& packing, const std::function<void(size_t part)>& reached = {});

}  // namespace weft
