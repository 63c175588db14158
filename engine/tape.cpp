// The tape's bookkeeping; walk.cpp has the walk that backward and gradient share.
#include "engine/tape.h"

#include <algorithm>

#include "engine/backend.h"
#include "engine/observer.h"
#include "engine/record.h"

namespace weft {

void Var::report_change() const {
  fail({"tape: a ", text(dtype()), " tensor ", text(shape()),
        " was changed in place after it was used on a tape; gradients computed from it would be wrong. "
        "Change it after backward, or record a clone()"});
}

Tape::Tape() = default;
Tape::~Tape() { truncate(0); }

void Tape::own(std::unique_ptr<Observer> observer) { owned_.push_back(std::move(observer)); }

void Tape::must_be_usable(const char* what) const {
  require(!consumed_, what,
          ": this tape was used up by an earlier backward; pass Keep::tape there to walk it again, or record on a new "
          "tape");
}

Var with_spreads(Var x, Spreads spreads) {
  x.spreads_ = spreads;
  if (x.tracked()) x.tape_->nodes_[static_cast<size_t>(x.id_)].spreads = spreads;
  if (x.tape_ && x.tape_->spreading_)
    for (Tape::Observer* observer : x.tape_->observers_) observer->respread(x);
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
  require(parameter.value.data() || parameter.value.size() == 0, "watch: parameter '", parameter.name,
          "' has a shape but no values here, as one that is divided among ranks outside of its unit");
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

Tape::Pause::Pause(Tape* tape) : tape_(tape), before_(tape && tape->recording_) {
  if (tape_) tape_->recording_ = false;
}
Tape::Pause::~Pause() {
  if (tape_) tape_->recording_ = before_;
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

Recording::Recording(const Op& op, Tensor value, std::span<const Var* const> inputs, size_t terms)
    : always_(op.replay == Replay::always && is_floating(value.dtype())) {
  Tape* tape = nullptr;
  bool tracked = always_;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Var& input = *inputs[i];
    if (!input.tape()) continue;
    require(!tape || tape == input.tape(), op.name, ": inputs belong to different tapes");
    tape = input.tape();
    tracked = tracked || (i < terms && input.tracked());
  }
  const bool spreading = !tape || tape->spreading_;
  const Spreads spreads = spreading ? combined(op, inputs, terms, tape ? tape->group_count_ : 0) : Spreads();
  if (tape && !tape->recording_) tape->replay_skipped_ = tape->replay_skipped_ || always_;
  active_ = tape && tape->recording_ && tracked;
  if (!active_) {
    output_ = Var(tape, -1, std::move(value), spreads);
    if (tape && !tape->observers_.empty() && spreading) show(op, inputs);
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
  if (!tape->observers_.empty() && spreading) [[unlikely]]
    show(op, inputs);
}

void Recording::show(const Op& op, std::span<const Var* const> inputs) const {
  for (Tape::Observer* observer : output_.tape_->observers_) observer->computed(output_, op, inputs);
}

void Recording::link(Tape::Pullback* pullback) {
  (last_ ? last_->next : output_.tape()->nodes_.back().pullbacks) = pullback;
  last_ = pullback;
}

const Tensor& Gradients::operator[](const Parameter& parameter) const {
  static const Tensor none;
  const auto found = sums_.find(&parameter);
  return found == sums_.end() ? none : found->second.value;
}

void Gradients::add(const Parameter& parameter, const Tensor& term) {
  require(term.shape() == parameter.value.shape() && term.dtype() == parameter.value.dtype(),
          "gradients: ", term.dtype(), " ", term.shape(), " for parameter '", parameter.name, "', which is ",
          parameter.value.dtype(), " ", parameter.value.shape());
  auto& [sum, placed] = sums_[&parameter];
  if (!sum.defined()) {
    sum = place_ ? place_(parameter) : Tensor();
    placed = sum.defined();
    if (placed)
      sum.copy_from(term);
    else
      sum = term;
  } else {
    if (!placed && !sum.unshared()) sum = sum.clone();  // someone holds the old sum, or the term it began with
    backend(sum.device()).accumulate(1, term, sum);
  }
}

void Gradients::forget(const Parameter& parameter) {
  if (const auto found = sums_.find(&parameter); found != sums_.end()) found->second = {};
}

void Gradients::clear() {
  for (auto& [parameter, sum] : sums_) sum = {};
}

}  // namespace weft
