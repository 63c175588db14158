// SPDX-License-Identifier: Apache-2.0
#pragma once
// A walk over the tape from its end, shared by backward, gradient queries and checkpoints. Only tape.cpp includes it.
#include <algorithm>
#include <optional>

#include "weft/engine/kernels/backend.h"
#include "weft/engine/kernels/scalar_ops.h"
#include "weft/engine/tape/add.h"
#include "weft/engine/tape/observer.h"
#include "weft/engine/tape/record.h"
#include "weft/engine/tensor/origin.h"

namespace weft {

class Walk {
 public:
  Walk(Tape& tape, Graph graph, Keep keep, Gradients* into)
      : tape_(tape), graph_(graph), keep_(keep), into_(into), count_(tape.nodes_.size()), cotangents_(count_) {
    tape.walk_ = this;
  }
  ~Walk() { tape_.walk_ = nullptr; }
  Walk(const Walk&) = delete;
  Walk& operator=(const Walk&) = delete;

  // Restricts the walk to nodes that depend on `wrt`, and to collectives and checkpoints, because other ranks or
  // parameters may depend on their gradients.
  void restrict_to(const std::vector<Var>& wrt) {
    needed_.assign(tape_.nodes_.size(), Need::no);
    for (const Var& v : wrt)
      if (v.tracked()) needed_[static_cast<size_t>(v.id_)] = Need::result;
    for (size_t id = 0; id < needed_.size(); ++id) {
      const Tape::Node& node = tape_.nodes_[id];
      if (node.kind == Tape::Kind::checkpoint || (node.op && node.op->replay == Replay::always))
        needed_[id] = std::max(needed_[id], Need::path);
      for (const Tape::Pullback* p = node.pullbacks; p; p = p->next)
        if (p->input >= 0 && needed_[static_cast<size_t>(p->input)] != Need::no)
          needed_[id] = std::max(needed_[id], Need::path);
    }
  }

  void run(const Var& y, const Var& seed) {
    const bool record = graph_ == Graph::create;
    const ModeScope walking(tape_, {.recording = record, .placements = record});
    // The seed is on the tape, so that every rank records the collectives in pullbacks, even if no input is tracked.
    if (y.tracked()) add(y.id_, seed.tape() ? Var(seed) : tape_.constant(seed.value()));
    const bool on_all_ranks = into_ || tape_.replays_;  // a single rank may make a query if there are no collectives
    for (Tape::Observer* observer : tape_.observers_) observer->walk_begins(on_all_ranks);
    visit(cotangents_.size(), 0);
    for (Tape::Observer* observer : tape_.observers_) observer->walk_ends(on_all_ranks);
  }

  Var result(const Var& wrt) {
    if (wrt.tracked() && at(wrt.id_).defined()) return at(wrt.id_);
    return zeros(wrt.shape(), wrt.dtype(), wrt.device(), wrt.placements());
  }

  int pulled() const { return pulled_; }  // the input whose pullback runs, or -1
  // Where a pullback can write the first term of a parameter's gradient. Each is given once.
  Tensor place_of_term(int id, const Shape& shape, DType dtype) {
    const bool is_given = std::find(given_.begin(), given_.end(), id) != given_.end();
    if (id < 0 || graph_ == Graph::create || at(id).defined() || is_given) return {};
    const Tape::Node& node = tape_.nodes_[static_cast<size_t>(id)];
    if (node.shape != shape || node.dtype != dtype) return {};
    given_.push_back(id);
    return place_for(id);
  }

 private:
  enum class Need : uint8_t { no, path, result };

  struct ModeScope {
    Tape& tape;
    const Tape::Mode before;
    ModeScope(Tape& tape, Tape::Mode now) : tape(tape), before(std::exchange(tape.mode_, now)) {}
    ~ModeScope() { tape.mode_ = before; }
  };

  // Removes from the tape the nodes that are recorded while it lives. They have a slot of their own, by which a Var of
  // such a node detects that the node is gone.
  struct TemporaryNodes {
    Tape& tape;
    const size_t begin = tape.nodes_.size();
    const Arena::Mark mark = tape.arena_.mark();
    TapeSlot* const before = std::exchange(tape.slot_, TapeSlot::take(tape));
    explicit TemporaryNodes(Tape& tape) : tape(tape) {}
    ~TemporaryNodes() {
      tape.truncate(begin);
      tape.arena_.rewind(mark);
      TapeSlot::give(std::exchange(tape.slot_, before));
    }
  };

  // Where a parameter's gradient can be summed, so that it need not be copied there.
  Tensor place_for(int id) const {
    const Tape::Node& node = tape_.nodes_[static_cast<size_t>(id)];
    return into_ && node.parameter ? into_->empty_place(*node.parameter) : Tensor();
  }

  // Sums of a parameter's cotangents change their storage late, and those in their places may share it.
  void renew(int id) {
    if (into_ && tape_.nodes_[static_cast<size_t>(id)].parameter) at(id).version_ = at(id).value_.version();
  }

  Var& at(int id) { return cotangents_[static_cast<size_t>(id)]; }
  Need need(int id) const {
    return static_cast<size_t>(id) < needed_.size() ? needed_[static_cast<size_t>(id)] : Need::path;
  }

  // Only this sum changes cotangents, and only if nothing else holds them.
  void add(int id, Var&& term) {
    put_on_tape(term, id);
    if (graph_ == Graph::none) Origin::set(term.value_, {});
    Var& sum = at(id);
    if (!sum.defined()) {
      sum = std::move(term);
    } else if (const Parameter* parameter = tape_.nodes_[static_cast<size_t>(id)].parameter;
               into_ && parameter && into_->takes(*parameter)) {
      sum = tape_.constant(into_->add_later(*parameter, std::move(sum.value_), term.value()));
      put_on_tape(sum, id);
    } else if (graph_ == Graph::none && sum.value_.unshared()) {
      backend(sum.device()).accumulate(1, term.value(), sum.value_);
      sum.version_ = sum.value_.version();
    } else {
      sum = sum + term;
      put_on_tape(sum, id);
    }
  }

  // The placements of a cotangent are the duals of the node's: each use of a Replicated value adds a part of its
  // gradient. Every cotangent is on the tape itself: one on none would not record the next collective, on this rank
  // alone, and one of a checkpoint's second run would be gone after it.
  void put_on_tape(Var& cotangent, int id) const {
    cotangent.placements_ = tape_.nodes_[static_cast<size_t>(id)].placements.duals();
    cotangent.slot_ = slot_;
    cotangent.number_ = tape_.number_;
  }

  Var zeros(const Shape& shape, DType dtype, Device device, Placements placements) const {
    return Var(slot_, -1, Tensor::zeros(shape, dtype, device), placements.duals());
  }

  // Visits the nodes [to, from) in reverse order.
  void visit(size_t from, size_t to) {
    const bool observed = !tape_.observers_.empty();
    for (size_t id = from; id-- > to;) {
      if (observed) [[unlikely]]
        notify_observers(id);
      if (tape_.nodes_[id].kind == Tape::Kind::leaf)
        deliver(id);
      else
        run_pullbacks(static_cast<int>(id));
      if (into_) into_->passed_operation();
      if (keep_ == Keep::nothing) tape_.release(tape_.nodes_[id]);
    }
  }

  void notify_observers(size_t id) {
    if (need(static_cast<int>(id)) == Need::no) return;
    const Tape::Node& node = tape_.nodes_[id];
    const std::string name = node.parameter ? "parameter '" + node.parameter->name + "'"
                             : node.op      ? node.op->name
                                            : "leaf";
    if (into_) into_->compute_sums();
    renew(static_cast<int>(id));
    const Var& sum = cotangents_[id];
    const Var g = sum.defined() ? sum : zeros(node.shape, node.dtype, node.device, node.placements);
    for (Tape::Observer* observer : tape_.observers_)
      observer->arrived(g, name, static_cast<int64_t>(id), node.placements);
  }

  // Adds the gradient of a leaf to the result. It is complete, because all uses of a leaf come after it on the tape.
  void deliver(size_t id) {
    const Parameter* parameter = tape_.nodes_[id].parameter;
    Var& sum = cotangents_[id];
    if (!into_ || !sum.defined()) return;
    renew(static_cast<int>(id));
    Tensor term = std::exchange(sum, {}).value();
    if (parameter) {
      const ModeScope outside(tape_, outside_);
      into_->arrived(*parameter, std::move(term), tape_, tape_.nodes_[id].placements);
    } else if (id < count_) {  // leaves of a checkpoint's second run need no gradient
      into_->add(slot_, static_cast<int>(id), term);
    }
  }

  void run_pullbacks(int id) {
    const Tape::Node& node = tape_.nodes_[static_cast<size_t>(id)];
    const Op& op = *node.op;
    Tape::Pullback* p = node.pullbacks;  // the node itself may move when pullbacks record
    const bool always = op.replay == Replay::always;
    try {
      if (node.kind == Tape::Kind::checkpoint) {
        if (p) recompute(id, static_cast<Tape::Piece&>(*p), always);
        return;
      }
      Var g = cotangent(id, always);
      if (!g.defined() || !(always || need(id) != Need::no)) return;
      given_.clear();
      for (; p; p = p->next) {
        if (!always && need(p->input) == Need::no) continue;
        pulled_ = p->input;
        Var term = p->apply(g);
        pulled_ = -1;
        if (term.defined() && p->input >= 0) {
          check(term, p->input);
          if (graph_ == Graph::create && !term.tracked()) tape_.reject_exchanged(term.value(), "its gradient");
          add(p->input, std::move(term));
        }
      }
    } catch (Error& error) {
      error.happened_in("backward of " + op.name);
      throw;
    }
  }

  // The cotangent of this node; zeros if no gradient reached it and it must always run.
  Var cotangent(int id, bool always) {
    Var g = need(id) == Need::result ? at(id) : std::move(at(id));
    const Tape::Node& node = tape_.nodes_[static_cast<size_t>(id)];
    if (!g.defined() && always) g = zeros(node.shape, node.dtype, node.device, node.placements);
    return g;
  }

  void check(const Var& term, int input) const {
    const Tape::Node& node = tape_.nodes_[static_cast<size_t>(input)];
    require(term.shape() == node.shape && term.dtype() == node.dtype, "the gradient is ", term.dtype(), " ",
            term.shape(), " but the input is ", node.dtype, " ", node.shape);
  }

  // Records the checkpointed piece again at the end of the tape, walks it, and removes it.
  void recompute(int first, Tape::Piece& piece, bool always) {
    Vars g;
    for (int i = 0; i < piece.count; ++i) g.push_back(cotangent(first + i, always));
    if (std::none_of(g.begin(), g.end(), [](const Var& v) { return v.defined(); })) return;
    const size_t begin = tape_.nodes_.size();
    std::optional<TemporaryNodes> temporary;
    if (graph_ == Graph::none) temporary.emplace(tape_);
    Vars results;
    {
      const ModeScope recording(tape_, {.recomputing = true});
      piece.apply({});
      results = std::exchange(piece.results, {});
    }
    const size_t end = tape_.nodes_.size();
    cotangents_.resize(end);
    require(results.size() == g.size(), "the piece had ", g.size(), " results, and has ", results.size(),
            " when it runs again");
    for (size_t i = 0; i < g.size(); ++i) {
      if (!g[i].defined()) continue;
      if (!results[i].tracked()) {
        tape_.reject_exchanged(results[i].value(), "result " + text(i + 1));
        continue;
      }
      require(tape_.on_this(results[i], "its result") && results[i].shape() == g[i].shape() &&
                  results[i].dtype() == g[i].dtype(),
              "result ", i + 1, " was ", g[i].dtype(), " ", g[i].shape(), ", and is ", results[i].dtype(), " ",
              results[i].shape(), " when the piece runs again");
      add(results[i].id_, std::move(g[i]));
    }
    visit(end, begin);
    if (temporary) cotangents_.resize(begin);
  }

  Tape& tape_;
  const Graph graph_;
  const Keep keep_;
  Gradients* const into_;
  TapeSlot* const slot_ = tape_.slot_;
  const Tape::Mode outside_ = tape_.mode_;
  const size_t count_;                                 // the number of nodes when the walk began
  std::vector<Var, pool::Allocator<Var>> cotangents_;  // by node id
  std::vector<Need, pool::Allocator<Need>> needed_;    // by node id; if empty, all nodes are needed
  int pulled_ = -1;
  std::vector<int, pool::Allocator<int>> given_;  // the inputs of this op whose places pullbacks write to
};

}  // namespace weft
