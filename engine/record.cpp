#include "engine/record.h"

#include "engine/observer.h"

namespace weft {

static Spreads combined(const Op& op, std::span<const Var* const> inputs, size_t terms, int groups) {
  const Spreads first = inputs[0]->spreads();
  bool alike = !first.anywhere(Spread::partial);
  for (const Var* input : inputs) alike = alike && (input->spreads() == first || !input->defined());
  if (alike) return first;
  Combination combination;
  for (size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i]->defined()) combination.add(inputs[i]->spreads(), i < terms ? Role::term : Role::data);
  return combination.result(op, groups);
}

static std::string input_of(const Op& op, size_t number) { return op.name + ": input " + text(number + 1); }

static Origin newest(Origin a, Origin b) {
  const bool first = a.tape > b.tape || (a.tape == b.tape && a.collective);
  return first ? a : b;
}

Recording::Recording(const Op& op, Tensor value, std::span<const Var* const> inputs, size_t terms)
    : always_(op.replay == Replay::always && is_floating(value.dtype())) {
  Tape* tape = nullptr;
  bool tracked = false;
  uint32_t origins = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Var& input = *inputs[i];
    if (i < terms) origins |= input.value_.origin_bits();
    if (!input.slot_) continue;
    if (input.stale() || (tape && tape != input.slot_->tape)) [[unlikely]]
      refuse(op, inputs, i);
    tape = input.slot_->tape;
    tracked = tracked || (i < terms && input.tracked());
  }
  const bool spreading = !tape || tape->mode_.spreading, recording = !tape || tape->mode_.recording;
  output_.spreads_ = spreading ? combined(op, inputs, terms, tape ? tape->group_count_ : 0) : Spreads();
  if (!recording) tape->replay_skipped_ = tape->replay_skipped_ || always_;
  active_ = tape && recording && (tracked || always_);
  const bool exchanged = origins & 1;
  if (active_ && tracked && exchanged) [[unlikely]]
    for (size_t i = 0; i < terms; ++i) tape->refuse_exchanged(inputs[i]->value_, input_of(op, i));
  // Field by field into their places: building them elsewhere and copying costs more than all the rest here.
  if (tape) {
    output_.slot_ = tape->slot_;
    output_.number_ = tape->slot_->number.load(std::memory_order_relaxed);
  }
  output_.version_ = value.version();
  if (active_) {
    tape->must_be_usable(op.name.c_str());
    tape->replays_ = tape->replays_ || always_;
    output_.id_ = static_cast<int>(tape->nodes_.size());
    Tape::Node& node = tape->nodes_.emplace_back();
    node.op = &op;
    node.kind = Tape::Kind::op;
    node.dtype = value.dtype();
    node.device = value.device();
    node.spreads = output_.spreads_;
    node.shape = value.shape();
  }
  output_.value_ = std::move(value);
  Tensor& y = output_.value_;
  if (!recording || (active_ && (tracked || !exchanged)))
    y.set_origin({active_ ? tape->number_ : 0});
  else if (origins != 0)
    for (size_t i = 0; i < terms; ++i) y.set_origin(newest(y.origin(), inputs[i]->value_.origin()));
  if (tape && !tape->observers_.empty() && spreading) [[unlikely]]
    show(op, inputs);
}

void Recording::refuse(const Op& op, std::span<const Var* const> inputs, size_t number) {
  const Var& input = *inputs[number];
  if (input.stale()) input.report_stale(input_of(op, number));
  fail({input_of(op, number), ", ", text(input.dtype()), " ", text(input.shape()),
        ", belongs to another tape than those before; use its value(), or watch that on this tape"});
}

void Recording::show(const Op& op, std::span<const Var* const> inputs) const {
  for (Tape::Observer* observer : tape().observers_) observer->computed(output_, op, inputs);
}

void Recording::link(Tape::Pullback* pullback) {
  (last_ ? last_->next : tape().nodes_.back().pullbacks) = pullback;
  last_ = pullback;
}

}  // namespace weft
