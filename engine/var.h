#pragma once
// What operations take and give: a Var, which is a Tensor in a computation; and a Parameter, which is trained.
#include <memory>
#include <vector>

#include "engine/pooled_function.h"
#include "engine/spread.h"
#include "engine/tape_slot.h"
#include "engine/tensor.h"

namespace weft {

class Var;
struct GroupPlacement;  // collectives/group_placement.h
using Vars = std::vector<Var, pool::Allocator<Var>>;

// A Tensor in a computation. A plain Tensor converts to a constant, so every op also works without a tape; how it is
// spread over ranks is then unsaid. Of a Var whose tape is gone the value can be read; all else is an Error.
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

  Spreads spreads() const { return spreads_; }  // how it relates to its counterparts on other ranks
  Tape* tape() const {
    if (stale()) [[unlikely]]
      report_stale("tape: a Var");
    return slot_ ? slot_->tape : nullptr;
  }
  bool tracked() const { return id_ >= 0; }  // whether gradients can flow to it

 private:
  friend class Tape;
  friend class Recording;
  friend class Walk;
  friend class Gradients;
  friend Vars checkpoint(PooledFunction<Vars(std::span<const Var>)> f, Vars inputs);
  friend Var with_spreads(Var x, Spreads spreads);
  enum class Leaf : uint8_t { no, tensor, parameter };
  Var(TapeSlot* slot, int id, Tensor value, Spreads spreads = {})
      : slot_(slot),
        id_(id),
        version_(value.version()),
        number_(slot ? slot->number.load(std::memory_order_relaxed) : 0),
        spreads_(spreads),
        value_(std::move(value)) {}
  bool stale() const { return slot_ && slot_->number.load(std::memory_order_relaxed) != number_; }
  [[noreturn]] void report_change() const;
  [[noreturn]] void report_stale(const std::string& who) const;

  TapeSlot* slot_ = nullptr;
  int id_ = -1;
  uint32_t version_ = 0;
  uint32_t number_ = 0;  // of the slot, for this tape
  Spreads spreads_;
  Leaf leaf_ = Leaf::no;
  Tensor value_;
};

// The same node, seen as spread otherwise: what collectives make of their results. Trusted, not checked.
Var with_spreads(Var x, Spreads spreads);
Var same_everywhere(Tensor value);             // a constant that all ranks have
Var derived(Tensor value, const Var& source);  // a constant made from source's values, such as a mask: spread alike

// A trainable tensor. Its address is its identity.
struct Parameter {
  std::string name;
  Tensor value;
  std::shared_ptr<const GroupPlacement> placement = {};  // how a group of ranks holds it, where layers are divided

  Parameter(std::string name, Tensor value) : name(std::move(name)), value(std::move(value)) {}
  Parameter(const Parameter&) = delete;
  Parameter& operator=(const Parameter&) = delete;
};

}  // namespace weft
