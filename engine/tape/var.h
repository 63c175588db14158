// SPDX-License-Identifier: Apache-2.0
#pragma once
// The inputs and results of operations are Vars. A Var is a Tensor in a computation; a Parameter is a trainable tensor.
#include <memory>
#include <vector>

#include "weft/engine/tape/placement.h"
#include "weft/engine/tape/pooled_function.h"
#include "weft/engine/tape/tape_slot.h"
#include "weft/engine/tensor/tensor.h"

namespace weft {

class Var;
struct Sharding;  // collectives/sharding.h
using Vars = std::vector<Var, pool::Allocator<Var>>;

// A Tensor in a computation. A plain Tensor converts to a constant of unknown placement, so every op also works without
// a tape. After its tape has been destroyed, a Var's value can still be read; any other use is an Error.
class Var {
 public:
  Var() = default;
  Var(Tensor constant) : Var(nullptr, -1, std::move(constant)) {}  // NOLINT: implicit on purpose

  // Error if the values were changed in place since this Var was made: a gradient computed from them would be wrong.
  const Tensor& value() const {
    if (value_.version() != version_) [[unlikely]]
      report_change();
    return value_;
  }
  const Shape& shape() const { return value_.shape(); }
  int64_t size() const { return value_.size(); }
  DType dtype() const { return value_.dtype(); }
  Device device() const { return value_.device(); }
  bool defined() const { return value_.defined(); }

  Placements placements() const { return placements_; }
  Tape* tape() const {
    if (stale()) [[unlikely]]
      report_stale("tape: a Var");
    return slot_ ? slot_->tape : nullptr;
  }
  bool tracked() const { return id_ >= 0; }  // whether gradients can flow to it

 private:
  // They need a Var's node: to record it, walk it, run it again, find a leaf's gradient, or place a result on ranks.
  friend class Tape;
  friend class Recording;
  friend class Walk;
  friend class Gradients;
  friend Vars checkpoint(PooledFunction<Vars(std::span<const Var>)> f, Vars inputs);
  friend Var with_placements(Var x, Placements placements);
  enum class Leaf : uint8_t { no, tensor, parameter };
  Var(TapeSlot* slot, int id, Tensor value, Placements placements = {})
      : slot_(slot),
        placements_(placements),
        id_(id),
        version_(value.version()),
        number_(slot ? slot->number.load(std::memory_order_relaxed) : 0),
        value_(std::move(value)) {}
  bool stale() const { return slot_ && slot_->number.load(std::memory_order_relaxed) != number_; }
  [[noreturn]] void report_change() const;
  [[noreturn]] void report_stale(const std::string& who) const;

  TapeSlot* slot_ = nullptr;
  Placements placements_;
  int id_ = -1;
  uint32_t version_ = 0;
  uint32_t number_ = 0;  // of the slot, for this tape
  Leaf leaf_ = Leaf::no;
  Tensor value_;
};

// The same node with other placements, as collectives set them for their results. The caller is trusted.
Var with_placements(Var x, Placements placements);
Var replicated_constant(Tensor value);  // a constant with equal values on all ranks
Var constant_like(Tensor value,
                  const Var& source);  // a constant made from source's values, such as a mask: placed alike
// The same value, through which no gradient flows. Methods of a Communicator exchange tensors, and no gradient comes
// back: comm.all_gather(detach(x).value()) says that none is wanted. Without detach it may have been forgotten, and is
// an Error where the result meets tracked values.
Var detach(const Var& x);

// A trainable tensor. Its address is its identity.
struct Parameter {
  std::string name;
  Tensor value;
  std::shared_ptr<const Sharding> sharding = {};  // how a group of ranks holds it; null if no group divides its layer

  Parameter(std::string name, Tensor value) : name(std::move(name)), value(std::move(value)) {}
  Parameter(const Parameter&) = delete;
  Parameter& operator=(const Parameter&) = delete;
};

}  // namespace weft
