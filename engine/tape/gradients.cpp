// SPDX-License-Identifier: Apache-2.0
#include "weft/engine/tape/gradients.h"

#include <algorithm>

#include "weft/engine/kernels/backend.h"

namespace weft {

bool Gradients::takes(const Parameter& parameter) const {
  if (parts_.empty()) return !takes_ || takes_(parameter);
  return std::any_of(parts_.begin(), parts_.end(), [&](const Gradients* part) { return part->takes(parameter); });
}

Gradients& Gradients::part_for(const Parameter& parameter) const {
  for (Gradients* part : parts_)
    if (part->takes(parameter)) return *part;
  reject(parameter);
}

void Gradients::reject(const Parameter& parameter) {
  fail({"gradients: ", parameter.name,
        " is not among the parameters that are trained here; give it to an optimizer, or make it a constant with "
        "Tape::Freeze where it is used"});
}

template <class Sums, class Key> static const Tensor& value_of(const Sums& sums, const Key& key) {
  static const Tensor none;
  const auto found = sums.find(key);
  return found == sums.end() ? none : found->second.value;
}

const Tensor& Gradients::operator[](const Parameter& parameter) const {
  if (!parts_.empty() && takes(parameter)) return part_for(parameter)[parameter];
  waiting_.compute();
  return value_of(sums_, &parameter);
}

bool Gradients::has(const Parameter& parameter) const {
  if (!parts_.empty() && takes(parameter)) return part_for(parameter).has(parameter);
  return value_of(sums_, &parameter).defined();
}

const Tensor& Gradients::operator[](const Var& leaf) const { return value_of(leaves_, key(leaf)); }

uint64_t Gradients::key(const Var& leaf) {
  require(leaf.leaf_ != Var::Leaf::parameter,
          "gradients: this Var is a parameter's; ask for the gradient of the parameter itself");
  require(leaf.leaf_ == Var::Leaf::tensor, "gradients: ", leaf.dtype(), " ", leaf.shape(),
          " is not what tape.watch gave; ask tape.gradient for that of anything else");
  return uint64_t{leaf.number_} << 32 | static_cast<uint32_t>(leaf.id_);
}

void Gradients::Sum::add(const Tensor& term) {
  if (!value.defined()) {
    value = term;
    return;
  }
  if (!placed && !value.unshared()) value = value.clone();  // the caller may hold the old sum, or its first term
  backend(value.device()).accumulate(1, term, value);
}

void Gradients::add(const Parameter& parameter, const Tensor& term) {
  if (!parts_.empty()) return part_for(parameter).add(parameter, term);
  require(term.shape() == parameter.value.shape() && term.dtype() == parameter.value.dtype(),
          "gradients: ", term.dtype(), " ", term.shape(), " for parameter '", parameter.name, "', which is ",
          parameter.value.dtype(), " ", parameter.value.shape());
  Sum& sum = sums_[&parameter];
  if (sum.value.defined()) {
    waiting_.compute();
    return sum.add(term);
  }
  if (!takes(parameter)) reject(parameter);
  sum.value = place_ ? place_(parameter) : Tensor();
  sum.placed = sum.value.defined();
  if (!sum.placed) sum.value = term;
  if (term.data() == sum.value.data()) return;
  waiting_.compute(term);
  sum.value.copy_from(term);
}

// For a walk, which gives up what it has of the sum so far: the sum with one more term, which is computed later.
Tensor Gradients::add_later(const Parameter& parameter, Tensor sum, const Tensor& term) {
  if (!parts_.empty()) return part_for(parameter).add_later(parameter, std::move(sum), term);
  waiting_.compute(sum);
  Tensor to = empty_place(parameter);
  if (!to.defined()) to = sum.unshared() ? sum : Tensor::like(sum);
  waiting_.add({std::move(sum), term, to});
  return to;
}

void Gradients::compute_sums() const {
  for (const Gradients* part : parts_) part->compute_sums();
  waiting_.compute();
}

// The place of a gradient that has no contribution yet; undefined if it has one or no place. What is written there is
// to be handed to `arrived`.
Tensor Gradients::empty_place(const Parameter& parameter) const {
  if (!takes(parameter)) return {};
  if (!parts_.empty()) return part_for(parameter).empty_place(parameter);
  return place_ && steady_ && !has(parameter) ? place_(parameter) : Tensor();
}

void Gradients::add(TapeSlot* slot, int id, const Tensor& term) {
  LeafSum& sum = leaves_[uint64_t{slot->number} << 32 | static_cast<uint32_t>(id)];
  sum.slot = slot;
  sum.add(term);
}

void Gradients::arrived(const Parameter& parameter, Tensor term, const Tape& tape, Placements leaf) {
  if (!parts_.empty()) {
    part_for(parameter).arrived(parameter, std::move(term), tape, leaf);
  } else {
    if (check_) check_(parameter, tape, leaf);
    add(parameter, term);
    term = {};  // frees its memory before the hooks, which may measure memory
  }
  arrival_hooks_(parameter);
  if (!hooks_.empty()) hooks_(parameter, (*this)[parameter]);
}

void Gradients::begin_backward(Tape& tape) {
  for (Gradients* part : parts_) part->begin_backward(tape);
  begin_hooks_(tape);
}

void Gradients::passed_operation() {
  for (Gradients* part : parts_) part->passed_operation();
  between_hooks_();
}

void Gradients::end_backward() {
  waiting_.compute();
  for (Gradients* part : parts_) part->end_backward();
  end_hooks_();
}

bool Gradients::has_end_hooks() const {
  return !end_hooks_.empty() ||
         std::any_of(parts_.begin(), parts_.end(), [](const auto* part) { return part->has_end_hooks(); });
}

void Gradients::forget(const Parameter& parameter) {
  if (!parts_.empty()) return part_for(parameter).forget(parameter);
  waiting_.compute();
  if (const auto found = sums_.find(&parameter); found != sums_.end()) found->second = {};
}

void Gradients::forget(const Var& leaf) { leaves_.erase(key(leaf)); }

void Gradients::forget_past_tapes() {
  std::erase_if(leaves_, [](const auto& entry) { return entry.second.slot->number != entry.first >> 32; });
}

void Gradients::clear() {
  for (Gradients* part : parts_) part->clear();
  waiting_.drop();
  for (auto& [parameter, sum] : sums_) sum = {};
  leaves_.clear();
}

}  // namespace weft
