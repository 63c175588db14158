// SPDX-License-Identifier: Apache-2.0
// Leaves, backward and gradient queries, and the tape's bookkeeping.
#include "weft/engine/tape/tape.h"

#include <algorithm>

#include "weft/engine/tape/walk.h"
#include "weft/engine/tensor/origin.h"

namespace weft {

Tape::Tape() : slot_(TapeSlot::take(*this)), number_(slot_->number) {}
Tape::~Tape() {
  truncate(0);
  TapeSlot::give(slot_);
}

void Tape::own(std::unique_ptr<Observer> observer) { owned_.push_back(std::move(observer)); }

void Tape::require_usable(const char* what) const {
  require(!consumed_, what,
          ": this tape was used up by an earlier backward; pass Keep::tape there to walk it again, or record on a new "
          "tape");
}

void Tape::require_walkable(const char* what) const {
  require_usable(what);
  require(!walk_, what,
          ": this tape is being walked, by the backward or gradient that a hook or pullback has called this from; "
          "call it after that, with Keep::tape there");
}

void Tape::reject_exchanged(const Tensor& x, const std::string& who) const {
  const Origin origin = Origin::of(x);
  if (!origin.collective || (origin.tape != number_ && origin.tape != Origin::any_tape)) return;
  const std::string collective = origin.collective;
  fail({who, ", ", text(x.dtype()), " ", text(x.shape()), ", is what comm.", collective,
        " made of values that gradients flow to, and no rank would get them back; use the differentiable ", collective,
        " of collectives/collectives.h, or detach(x).value() where none are wanted"});
}

// `input` is one of the op whose pullbacks run; by default the one whose pullback does.
Tensor Tape::place_of_term(const Var* input, const Shape& shape, DType dtype) const {
  return walk_ ? walk_->place_of_term(input ? input->id_ : walk_->pulled(), shape, dtype) : Tensor();
}

int Tape::find_group(const Partition& partition) const {
  const auto found = std::find_if(groups_.begin(), groups_.end(),
                                  [&](const KnownGroup& known) { return known.partition.get() == &partition; });
  return found == groups_.end() ? -1 : static_cast<int>(found - groups_.begin());
}

int Tape::learn(const Group& group) {
  require(groups() < Placements::max_groups, "tape: more than ", int{Placements::max_groups},
          " different groups of ranks on one tape; record on another tape what uses other groups");
  groups_.push_back({group});
  return groups() - 1;
}

Var Tape::constant(Tensor value) { return Var(slot_, -1, std::move(value), Placements(Placement::varying)); }

Var Tape::leaf(Tensor value, const Parameter* parameter, Placement placement) {
  require_usable("watch");
  require(value.defined() && is_floating(value.dtype()), "watch: only floating tensors have gradients, not ",
          value.dtype());
  nodes_.push_back(
      {nullptr, parameter, nullptr, Placements(placement), Kind::leaf, value.dtype(), value.device(), value.shape()});
  Origin::set(value, {number_});
  Var leaf(slot_, static_cast<int>(nodes_.size()) - 1, std::move(value), Placements(placement));
  leaf.leaf_ = parameter ? Var::Leaf::parameter : Var::Leaf::tensor;
  for (Observer* observer : observers_) observer->watched(leaf, parameter);
  return leaf;
}

Var Tape::watch(Tensor value) { return leaf(std::move(value), nullptr, Placement::varying); }

Var Tape::watch(const Parameter& parameter) {
  const auto found = parameters_.find(&parameter);
  if (found != parameters_.end() && frozen(parameter)) return detach(found->second);
  if (found != parameters_.end()) return found->second;
  require(parameter.value.data() || parameter.value.size() == 0, "watch: parameter '", parameter.name,
          "' has a shape but no values here, as one that is divided among ranks outside of its unit");
  if (frozen(parameter)) return Var(slot_, -1, parameter.value, Placements(Placement::replicated));
  return parameters_.emplace(&parameter, leaf(parameter.value, &parameter, Placement::replicated)).first->second;
}

void Tape::substitute(const Parameter& parameter, Var var) {
  if (!var.defined()) {
    parameters_.erase(&parameter);
    return;
  }
  require(var.tape() == this, "substitute: what stands for '", parameter.name, "' is not on this tape");
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

void Tape::backward(const Var& loss, Gradients& into, Keep keep) {
  into.begin_backward(*this);
  backward(loss, unit_seed(loss, "backward"), into, keep);
}

void Tape::backward(const Var& of, const Tensor& seed, Gradients& into, Keep keep) {
  require_walkable("backward");
  require(on_this(of, "backward: the loss"), "backward: the loss is not on this tape");
  if (!of.tracked()) reject_exchanged(of.value(), "backward: the loss");
  // In a group even a rank with a constant loss runs backward, because other ranks wait for it, in the walk or at its
  // end.
  const bool among_ranks = replays_ || !groups_.empty() || into.has_end_hooks();
  require(of.tracked() || among_ranks, "backward: the loss depends on nothing that is watched, so it has no gradient");
  require(seed.shape() == of.shape() && seed.dtype() == of.dtype(), "backward: the seed is ", seed.dtype(), " ",
          seed.shape(), ", the loss ", of.dtype(), " ", of.shape());
  into.forget_past_tapes();
  into.compute_sums();  // an earlier backward may have thrown
  {
    struct Consume {  // even if a pullback throws, because nodes that were released cannot be walked again
      Tape* tape;
      ~Consume() {
        if (tape) tape->consume();
      }
    } const at_end{keep == Keep::nothing ? this : nullptr};
    Walk(*this, Graph::none, keep, &into).run(of, seed);
  }
  into.end_backward();
}

std::vector<Var> Tape::gradient(const Var& y, const std::vector<Var>& wrt, Graph graph) {
  return gradient(y, unit_seed(y, "gradient"), wrt, graph);
}

std::vector<Var> Tape::gradient(const Var& y, const Var& seed, const std::vector<Var>& wrt, Graph graph) {
  require_walkable("gradient");
  require(!y.slot_ || on_this(y, "gradient: the result"), "gradient: the result is on another tape");
  if (!y.tracked()) reject_exchanged(y.value(), "gradient: the result");
  require(!seed.slot_ || on_this(seed, "gradient: the seed"), "gradient: the seed is on another tape");
  require(seed.shape() == y.shape() && seed.dtype() == y.dtype(), "gradient: the seed is ", seed.dtype(), " ",
          seed.shape(), ", the result ", y.dtype(), " ", y.shape());
  for (const Var& v : wrt)
    require(on_this(v, "gradient: a Var to differentiate by") && v.tracked(),
            "gradient: a Var to differentiate by is not watched on this tape");
  Walk walk(*this, graph, Keep::tape, nullptr);
  walk.restrict_to(wrt);
  if (y.tracked() || replays_) walk.run(y, seed);
  std::vector<Var> results;
  for (const Var& v : wrt) results.push_back(walk.result(v));
  return results;
}

bool Tape::on_this(const Var& x, const char* what) const {
  if (x.stale()) x.report_stale(what);
  return x.slot_ && x.slot_->tape == this;
}

}  // namespace weft
