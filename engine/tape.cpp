// The tape's bookkeeping; walk.cpp has the walk that backward and gradient share.
#include "engine/tape.h"

#include "engine/backend.h"
#include "engine/record.h"

namespace weft {

void Var::report_change() const {
  fail({"tape: a ", text(dtype()), " tensor ", text(shape()),
        " was changed in place after it was used on a tape; gradients computed from it would be wrong. "
        "Change it after backward, or record a clone()"});
}

Tape::Tape() = default;
Tape::~Tape() { truncate(0); }

void Tape::must_be_usable(const char* what) const {
  require(!consumed_, what,
          ": this tape was used up by an earlier backward; pass Keep::tape there to walk it again, or record on a new "
          "tape");
}

Var with_spreads(Var x, Spreads spreads) {
  x.spreads_ = spreads;
  if (x.tracked()) x.tape_->nodes_[static_cast<size_t>(x.id_)].spreads = spreads;
  return x;
}

int Tape::group(const void* key, int size) {
  for (int i = 0; i < group_count_; ++i)
    if (groups_[static_cast<size_t>(i)].key == key) return i;
  require(group_count_ < Spreads::max_groups, "tape: more than ", int{Spreads::max_groups},
          " groups of ranks on one tape");
  groups_[static_cast<size_t>(group_count_)] = {key, size};
  return group_count_++;
}

Var Tape::constant(Tensor value) { return Var(this, -1, std::move(value), Spreads(Spread::varying)); }

Var Tape::leaf(Tensor value, const Parameter* parameter, Spread spread) {
  must_be_usable("watch");
  require(value.defined() && is_floating(value.dtype()), "watch: only floating tensors have gradients, not ",
          value.dtype());
  nodes_.push_back(
      {nullptr, parameter, nullptr, Kind::leaf, value.dtype(), value.device(), Spreads(spread), value.shape()});
  return Var(this, static_cast<int>(nodes_.size()) - 1, std::move(value), Spreads(spread));
}

Var Tape::watch(Tensor value) { return leaf(std::move(value), nullptr, Spread::varying); }

Var Tape::watch(const Parameter& parameter) {
  const auto found = parameters_.find(&parameter);
  if (found != parameters_.end()) return found->second;
  return parameters_.emplace(&parameter, leaf(parameter.value, &parameter, Spread::replicated)).first->second;
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
}

void Tape::consume() {
  truncate(0);
  parameters_.clear();
  consumed_ = true;
}

Tape::Pause::Pause(Tape* tape) : tape_(tape), before_(tape && tape->recording_) {
  if (tape_) tape_->recording_ = false;
}
Tape::Pause::~Pause() {
  if (tape_) tape_->recording_ = before_;
}

static Spreads combined(const Op& op, std::span<const Var* const> inputs, int groups) {
  Combination combination;
  for (const Var* input : inputs)
    if (input->defined()) combination.add(input->spreads());
  return combination.result(op, groups);
}

Recording::Recording(const Op& op, Tensor value, std::span<const Var* const> inputs)
    : always_(op.replay == Replay::always && is_floating(value.dtype())) {
  Tape* tape = nullptr;
  bool tracked = always_;
  for (const Var* input : inputs) {
    if (!input->tape()) continue;
    require(!tape || tape == input->tape(), op.name, ": inputs belong to different tapes");
    tape = input->tape();
    tracked = tracked || input->tracked();
  }
  const Spreads spreads = tape && tape->spreading_ ? combined(op, inputs, tape->group_count_) : Spreads();
  if (tape && !tape->recording_) tape->replay_skipped_ = tape->replay_skipped_ || always_;
  active_ = tape && tape->recording_ && tracked;
  if (!active_) {
    output_ = Var(tape, -1, std::move(value), spreads);
    return;
  }
  tape->must_be_usable(op.name.c_str());
  tape->replays_ = tape->replays_ || always_;
  // Field by field into their places: building them elsewhere and copying costs more than all the rest here.
  output_.tape_ = tape;
  output_.id_ = static_cast<int>(tape->nodes_.size());
  output_.version_ = value.version();
  output_.spreads_ = spreads;
  Tape::Node& node = tape->nodes_.emplace_back();
  node.op = &op;
  node.kind = Tape::Kind::op;
  node.dtype = value.dtype();
  node.device = value.device();
  node.spreads = spreads;
  node.shape = value.shape();
  output_.value_ = std::move(value);
}

void Recording::link(Tape::Pullback* pullback) {
  (last_ ? last_->next : output_.tape()->nodes_.back().pullbacks) = pullback;
  last_ = pullback;
}

const Tensor& Gradients::operator[](const Parameter& parameter) const {
  static const Tensor none;
  const auto found = sums_.find(&parameter);
  return found == sums_.end() ? none : found->second;
}

void Gradients::add(const Parameter& parameter, const Tensor& term) {
  require(term.shape() == parameter.value.shape() && term.dtype() == parameter.value.dtype(),
          "gradients: ", term.dtype(), " ", term.shape(), " for parameter '", parameter.name, "', which is ",
          parameter.value.dtype(), " ", parameter.value.shape());
  Tensor& sum = sums_[&parameter];
  if (!sum.defined()) {
    sum = term;
  } else {
    if (!sum.unshared()) sum = sum.clone();  // someone holds the old sum, or the term it began with
    backend(sum.device()).accumulate(1, term, sum);
  }
}

void Gradients::clear() {
  for (auto& [parameter, sum] : sums_) sum = Tensor();
}

}  // namespace weft
