#pragma once
// Tensors side by side in flat memory, as ops on the tape: what is gathered and reduced together travels as one.
#include <functional>
#include <span>
#include <vector>

#include "engine/tape.h"

namespace weft {

// Where each of several tensors lies in flat memory of `size` elements, in ascending order.
struct Packing {
  struct Slot {
    int64_t begin;
    Shape shape;
    int64_t end() const { return begin + shape.size(); }
  };
  std::vector<Slot> slots;
  int64_t size = 0;
  std::function<StorageHandle(size_t bytes)> allocate = {};  // for what is packed; without it: the device's pool
};

// Zeros between them, and for empty Vars. The packing must outlive the tape, as it must that of unpack.
Var pack(std::span<const Var> parts, const Packing& packing);

// Views, all of one memory. In backward their gradients are packed once, when the last of them has come; `reached`
// hears of each that has one.
Vars unpack(const Var& flat, const Packing& packing, const std::function<void(size_t part)>& reached = {});

}  // namespace weft
