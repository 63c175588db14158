// The tape's bookkeeping; walk.cpp has the walk that backward and gradient share.
#include "engine/tape.h"

#include <algorithm>

#include "engine/backend.h"
#include "engine/observer.h"
#include "engine/ops/elementwise.h"
#include "engine/record.h"

namespace weft {

void Var::report_change() const {
  fail({"tape: a ", text(dtype()), " tensor ", text(shape()),
        " was changed in place after it was used on a tape; gradients computed from it would be wrong. "
        "Change it after backward, or record a clone()"});
}

void Var::report_stale(const std::string& who) const {
  fail({who, ", ", text(dtype()), " ", text(shape()),
        ", is of a tape that is gone, or of a checkpoint's second run, which is over; use its value(), or watch that "
        "again"});
}

Tape::Tape() : slot_(TapeSlot::take(*this)), number_(slot_->number) {}
Tape::~Tape() {
  truncate(0);
  TapeSlot::give(slot_);
}

void Tape::own(std::unique_ptr<Observer> observer) { owned_.push_back(std::move(observer)); }

void Tape::must_be_usable(const char* what) const {
  require(!consumed_, what,
          ": this tape was used up by an earlier backward; pass Keep::tape there to walk it again, or record on a new "
          "tape");
}

void Tape::must_be_walkable(const char* what) const {
  must_be_usable(what);
  require(!walking_, what,
          ": this tape is being walked, by the backward or gradient that a hook or pullback has called this from; "
          "call it after that, with Keep::tape there");
}

void Tape::refuse_exchanged(const Tensor& x, const std::string& who) const {
  const Origin origin = x.origin();
  if (!origin.collective || (origin.tape != number_ && origin.tape != Origin::any_tape)) return;
  const std::string collective = origin.collective;
  fail({who, ", ", text(x.dtype()), " ", text(x.shape()), ", is what comm.", collective,
        " made of values that gradients flow to, and no rank would get them back; use the differentiable ", collective,
        " of collectives/ops.h, or detach(x).value() where none are wanted"});
}

Var with_spreads(Var x, Spreads spreads) {
  x.spreads_ = spreads;
  Tape* tape = x.tape();
  if (!tape) return x;
  if (x.tracked()) {
    tape->must_be_usable("with_spreads");
    tape->nodes_[static_cast<size_t>(x.id_)].spreads = spreads;
  }
  if (tape->mode_.spreading)
    for (Tape::Observer* observer : tape->observers_) observer->respread(x);
  return x;
}

Var same_everywhere(Tensor value) { return with_spreads(std::move(value), Spreads(Spread::same)); }

Var derived(Tensor value, const Var& source) {
  return with_spreads(source.tape() ? source.tape()->constant(std::move(value)) : Var(std::move(value)),
                      source.spreads());
}

int Tape::group(const void* key) const {
  for (int i = 0; i < group_count_; ++i)
    if (groups_[static_cast<size_t>(i)].key == key) return i;
  return -1;
}

int Tape::group(const void* key, Members members) {
  require(group_count_ < Spreads::max_groups, "tape: more than ", int{Spreads::max_groups},
          " groups of ranks on one tape");
  std::sort(members.begin(), members.end());
  groups_[static_cast<size_t>(group_count_)] = {key, std::move(members)};
  return group_count_++;
}

Var Tape::constant(Tensor value) { return Var(slot_, -1, std::move(value), Spreads(Spread::varying)); }

Var Tape::leaf(Tensor value, const Parameter* parameter, Spread spread) {
  must_be_usable("watch");
  require(value.defined() && is_floating(value.dtype()), "watch: only floating tensors have gradients, not ",
          value.dtype());
  nodes_.push_back(
      {nullptr, parameter, nullptr, Kind::leaf, value.dtype(), value.device(), Spreads(spread), value.shape()});
  value.set_origin({number_});
  Var leaf(slot_, static_cast<int>(nodes_.size()) - 1, std::move(value), Spreads(spread));
  leaf.leaf_ = parameter ? Var::Leaf::parameter : Var::Leaf::tensor;
  return leaf;
}

Var Tape::watch(Tensor value) { return leaf(std::move(value), nullptr, Spread::varying); }

Var Tape::watch(const Parameter& parameter) {
  const auto found = parameters_.find(&parameter);
  if (found != parameters_.end() && frozen(parameter)) return detach(found->second);
  if (found != parameters_.end()) return found->second;
  require(parameter.value.data() || parameter.value.size() == 0, "watch: parameter '", parameter.name,
          "' has a shape but no values here, as one that is divided among ranks outside of its unit");
  if (frozen(parameter)) return Var(slot_, -1, parameter.value, Spreads(Spread::replicated));
  const Var& var = parameters_.emplace(&parameter, leaf(parameter.value, &parameter, Spread::replicated)).first->second;
  for (Observer* observer : observers_) observer->watched(var, parameter);
  return var;
}

void Tape::stand_in(const Parameter& parameter, Var var) {
  if (!var.defined()) {
    parameters_.erase(&parameter);
    return;
  }
  require(var.tape() == this, "stand_in: what stands for '", parameter.name, "' is not on this tape");
  parameters_.insert_or_assign(&parameter, std::move(var));
}

void Tape::release(Node& node) {
  for (Pullback* p = node.pullbacks; p;) {
    Pullback* next = p->next;
    p->~Pullback();
    p = next;
  }
  node.pullbacks = nullptr;
}

void Tape::truncate(size_t size) {
  while (nodes_.size() > size) {
    release(nodes_.back());
    nodes_.pop_back();
  }
  std::erase_if(parameters_, [&](const auto& watched) { return watched.second.id_ >= static_cast<int>(size); });
}

void Tape::consume() {
  truncate(0);
  parameters_.clear();
  consumed_ = true;
}

Tape::Pause::Pause(Tape* tape) : tape_(tape), before_(tape && tape->mode_.recording) {
  if (tape_) tape_->mode_.recording = false;
}
Tape::Pause::~Pause() {
  if (tape_) tape_->mode_.recording = before_;
}

Tape::Freeze::Freeze(Tape& tape, List list) : tape_(tape), before_(std::exchange(tape.frozen_, std::move(list))) {}
Tape::Freeze::Freeze(Tape& tape, const std::vector<Parameter*>& parameters) : tape_(tape), before_(tape.frozen_) {
  std::vector<const Parameter*> all(parameters.begin(), parameters.end());
  if (before_) all.insert(all.end(), before_->begin(), before_->end());
  std::sort(all.begin(), all.end(), std::less<>());
  tape.frozen_ = std::make_shared<const std::vector<const Parameter*>>(std::move(all));
}
Tape::Freeze::~Freeze() { tape_.frozen_ = before_; }

bool Tape::frozen(const Parameter& parameter) const {
  return frozen_ && std::binary_search(frozen_->begin(), frozen_->end(), &parameter, std::less<>());
}

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

bool Gradients::takes(const Parameter& parameter) const {
  if (parts_.empty()) return !takes_ || takes_(parameter);
  return std::any_of(parts_.begin(), parts_.end(), [&](const Gradients* part) { return part->takes(parameter); });
}

Gradients& Gradients::part_for(const Parameter& parameter) const {
  for (Gradients* part : parts_)
    if (part->takes(parameter)) return *part;
  refuse(parameter);
}

void Gradients::refuse(const Parameter& parameter) {
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
  return value_of(sums_, &parameter);
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
  if (!placed && !value.unshared()) value = value.clone();  // someone holds the old sum, or the term it began with
  backend(value.device()).accumulate(1, term, value);
}

void Gradients::add(const Parameter& parameter, const Tensor& term) {
  if (!parts_.empty()) return part_for(parameter).add(parameter, term);
  require(term.shape() == parameter.value.shape() && term.dtype() == parameter.value.dtype(),
          "gradients: ", term.dtype(), " ", term.shape(), " for parameter '", parameter.name, "', which is ",
          parameter.value.dtype(), " ", parameter.value.shape());
  Sum& sum = sums_[&parameter];
  if (!sum.value.defined()) {
    if (!takes(parameter)) refuse(parameter);
    sum.value = place_ ? place_(parameter) : Tensor();
    sum.placed = sum.value.defined();
    if (sum.placed) return sum.value.copy_from(term);
  }
  sum.add(term);
}

void Gradients::add(TapeSlot* slot, int id, const Tensor& term) {
  LeafSum& sum = leaves_[uint64_t{slot->number} << 32 | static_cast<uint32_t>(id)];
  sum.slot = slot;
  sum.add(term);
}

void Gradients::arrived(const Parameter& parameter, Tensor term, const Tape& tape, Spreads leaf) {
  if (!parts_.empty()) {
    part_for(parameter).arrived(parameter, std::move(term), tape, leaf);
  } else {
    if (check_) check_(parameter, tape, leaf);
    add(parameter, term);
    term = {};  // hooks may measure what is held
  }
  hooks_(parameter, (*this)[parameter]);
}

void Gradients::end_backward() {
  for (Gradients* part : parts_) part->end_backward();
  ends_();
}

bool Gradients::has_ends() const {
  return !ends_.empty() || std::any_of(parts_.begin(), parts_.end(), [](const auto* part) { return part->has_ends(); });
}

void Gradients::forget(const Parameter& parameter) {
  if (!parts_.empty()) return part_for(parameter).forget(parameter);
  if (const auto found = sums_.find(&parameter); found != sums_.end()) found->second = {};
}

void Gradients::forget(const Var& leaf) { leaves_.erase(key(leaf)); }

void Gradients::forget_past_tapes() {
  std::erase_if(leaves_, [](const auto& entry) { return entry.second.slot->number != entry.first >> 32; });
}

void Gradients::clear() {
  for (Gradients* part : parts_) part->clear();
  for (auto& [parameter, sum] : sums_) sum = {};
  leaves_.clear();
}

}  // namespace weft
