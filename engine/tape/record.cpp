// SPDX-License-Identifier: Apache-2.0
#include "weft/engine/tape/record.h"

#include "weft/engine/tape/observer.h"
#include "weft/engine/tensor/origin.h"

namespace weft {

static Placements combined(const Op& op, std::span<const Var* const> inputs, size_t terms, int groups) {
  const Placements first = inputs[0]->placements();
  bool alike = !first.anywhere(Placement::partial);
  for (const Var* input : inputs) alike = alike && (input->placements() == first || !input->defined());
  if (alike) return first;
  Combination combination;
  for (size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i]->defined()) combination.add(inputs[i]->placements(), i < terms ? Role::term : Role::data);
  return combination.result(op, groups);
}

static std::string input_of(const Op& op, size_t number) { return op.name + ": input " + text(number + 1); }

static Origin newest(Origin a, Origin b) {
  const bool first = a.tape > b.tape || (a.tape == b.tape && a.collective);
  return first ? a : b;
}

// What the inputs of an op have in common.
struct Recording::Inputs {
  Tape* tape = nullptr;  // of those that are on one
  bool tracked = false;  // whether any needs a gradient
  uint32_t origins = 0;  // the bits of all: odd if any value has passed a plain collective

  Inputs(const Op& op, std::span<const Var* const> inputs, size_t terms) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      const Var& input = *inputs[i];
      if (i < terms) origins |= Origin::bits_of(input.value_);
      if (!input.slot_) continue;
      if (input.stale() || (tape && tape != input.slot_->tape)) [[unlikely]]
        reject(op, inputs, i);
      tape = input.slot_->tape;
      tracked = tracked || (i < terms && input.tracked());
    }
  }
  bool passed_a_plain_collective() const { return origins & 1; }
};

// The tape of the inputs decides, and whether any of them needs a gradient:
//
//   tape              gradients    node       origin of the value
//   none              no           no         that of the inputs
//   records           yes          yes        this tape; refused if an input has passed a plain collective
//   records           no           no (*)     that of the inputs
//   is paused         -            no         none
//   (*) An op that always replays, which is a collective, has a node all the same: all ranks run its adjoint.
//
// The members of the output and the node are set one by one, because copying whole objects costs more than the rest.
Recording::Recording(const Op& op, Tensor value, std::span<const Var* const> inputs, size_t terms)
    : always_(op.replay == Replay::always && is_floating(value.dtype())) {
  const Inputs common(op, inputs, terms);
  Tape* const tape = common.tape;
  const bool placing = !tape || tape->mode_.placements, recording = !tape || tape->mode_.recording;
  if (placing) output_.placements_ = combined(op, inputs, terms, tape ? tape->groups() : 0);
  active_ = tape && recording && (common.tracked || always_);
  if (tape) {
    output_.slot_ = tape->slot_;
    output_.number_ = tape->slot_->number.load(std::memory_order_relaxed);
    if (!recording) tape->replay_skipped_ = tape->replay_skipped_ || always_;
  }
  output_.version_ = value.version();
  if (active_ && common.tracked && common.passed_a_plain_collective()) [[unlikely]]
    for (size_t i = 0; i < terms; ++i) tape->reject_exchanged(inputs[i]->value_, input_of(op, i));
  if (active_) add_node(op, value, *tape);
  output_.value_ = std::move(value);
  set_origin(common, recording, inputs.first(terms));
  if (tape && !tape->observers_.empty() && placing) [[unlikely]]
    notify_observers(op, inputs);
}

Tensor Recording::place_of_term(const Var& x, const Var* input, const Shape& shape) {
  return x.slot_ && !x.stale() ? x.slot_->tape->place_of_term(input, shape, x.dtype()) : Tensor();
}

Tensor memory_for_result(const Var& x, const Shape& shape) {
  const Tensor place = Recording::place_of_term(x, nullptr, shape);
  return place.defined() ? place : Tensor(shape, x.dtype(), x.device());
}

Tensor memory_for_gradient(const Var& input) {
  const Tensor place = Recording::place_of_term(input, &input, input.shape());
  return place.defined() ? place : Tensor::like(input.value());
}

void Recording::add_node(const Op& op, const Tensor& value, Tape& tape) {
  tape.require_usable(op.name.c_str());
  tape.replays_ = tape.replays_ || always_;
  output_.id_ = static_cast<int>(tape.nodes_.size());
  Tape::Node& node = tape.nodes_.emplace_back();
  node.op = &op;
  node.kind = Tape::Kind::op;
  node.dtype = value.dtype();
  node.device = value.device();
  node.placements = output_.placements_;
  node.shape = value.shape();
}

void Recording::set_origin(const Inputs& common, bool recording, std::span<const Var* const> terms) {
  Tensor& y = output_.value_;
  if (!recording || (active_ && (common.tracked || !common.passed_a_plain_collective())))
    Origin::set(y, {active_ ? common.tape->number_ : 0});
  else if (common.origins != 0)
    for (const Var* term : terms) Origin::set(y, newest(Origin::of(y), Origin::of(term->value_)));
}

void Recording::reject(const Op& op, std::span<const Var* const> inputs, size_t number) {
  const Var& input = *inputs[number];
  if (input.stale()) input.report_stale(input_of(op, number));
  fail({input_of(op, number), ", ", text(input.dtype()), " ", text(input.shape()),
        ", belongs to another tape than those before; use its value(), or watch that on this tape"});
}

void Recording::notify_observers(const Op& op, std::span<const Var* const> inputs) const {
  for (Tape::Observer* observer : tape().observers_) observer->computed(output_, op, inputs);
}

void Recording::link(Tape::Pullback* pullback) {
  (last_ ? last_->next : tape().nodes_.back().pullbacks) = pullback;
  last_ = pullback;
}

}  // namespace weft
