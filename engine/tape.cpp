// The tape's bookkeeping; walk.cpp has the walk that backward and gradient share.
#include "engine/tape.h"

#include <algorithm>

#include "engine/observer.h"
#include "engine/ops/elementwise.h"

namespace weft {

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

}  // namespace weft
