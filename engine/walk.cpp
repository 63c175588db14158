// One walk over the tape from its end, shared by backward, gradient queries and checkpoints.
#include <algorithm>
#include <optional>

#include "engine/backend.h"
#include "engine/observer.h"
#include "engine/ops/elementwise.h"
#include "engine/record.h"

namespace weft {

class Walk {
 public:
  Walk(Tape& tape, Graph graph, Keep keep, Gradients* into)
      : tape_(tape), graph_(graph), keep_(keep), into_(into), count_(tape.nodes_.size()), cotangents_(count_) {
    tape.walking_ = true;
  }
  ~Walk() { tape_.walking_ = false; }
  Walk(const Walk&) = delete;
  Walk& operator=(const Walk&) = delete;

  // Only what `by` depends on is needed, and what collectives and checkpoints receive: other ranks, or parameters, may
  // depend on that.
  void restrict_to(const std::vector<Var>& by) {
    needed_.assign(tape_.nodes_.size(), Need::no);
    for (const Var& v : by)
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

  void run(const Var& of, const Var& seed) {
    const bool record = graph_ == Graph::create;
    const InMode walking(tape_, {.recording = record, .spreading = record});
    // On the tape, so that collectives in pullbacks are recorded on every rank, whether or not they meet a tracked
    // value.
    if (of.tracked()) add(of.id_, seed.tape() ? Var(seed) : tape_.constant(seed.value()));
    const bool on_all_ranks = into_ || tape_.replays_;  // a query may be one rank's own where nothing is exchanged
    for (Tape::Observer* observer : tape_.observers_) observer->walk_begins(on_all_ranks);
    down(cotangents_.size(), 0);
    for (Tape::Observer* observer : tape_.observers_) observer->walk_ends(on_all_ranks);
  }

  Var result(const Var& by) {
    if (by.tracked() && at(by.id_).defined()) return at(by.id_);
    return zeros(by.shape(), by.dtype(), by.device(), by.spreads());
  }

 private:
  enum class Need : uint8_t { no, path, result };

  struct InMode {
    Tape& tape;
    const Tape::Mode before;
    InMode(Tape& tape, Tape::Mode now) : tape(tape), before(std::exchange(tape.mode_, now)) {}
    ~InMode() { tape.mode_ = before; }
  };

  // Takes off the tape what is recorded while it exists. Vars of that which someone keeps are told by their slot.
  struct Temporary {
    Tape& tape;
    const size_t begin = tape.nodes_.size();
    const Arena::Mark mark = tape.arena_.mark();
    TapeSlot* const before = std::exchange(tape.slot_, TapeSlot::take(tape));
    explicit Temporary(Tape& tape) : tape(tape) {}
    ~Temporary() {
      tape.truncate(begin);
      tape.arena_.rewind(mark);
      TapeSlot::give(std::exchange(tape.slot_, before));
    }
  };

  Var& at(int id) { return cotangents_[static_cast<size_t>(id)]; }
  Need need(int id) const {
    return static_cast<size_t>(id) < needed_.size() ? needed_[static_cast<size_t>(id)] : Need::path;
  }

  // Cotangents are immutable for everyone but this sum, and for it only once nobody else holds them.
  void add(int id, Var&& term) {
    // What a Replicated value's users send back are parts of its gradient, whatever each of them was.
    const Spreads spreads = tape_.nodes_[static_cast<size_t>(id)].spreads.duals();
    term.spreads_ = spreads;
    term.slot_ = slot_;  // or collectives that it meets next would be recorded on other ranks only
    term.number_ = tape_.number_;
    if (graph_ == Graph::none) term.value_.set_origin({});
    Var& sum = at(id);
    if (!sum.defined()) {
      sum = std::move(term);
    } else if (graph_ == Graph::none && sum.value_.unshared()) {
      backend(sum.device()).accumulate(1, term.value(), sum.value_);
      sum.version_ = sum.value_.version();
    } else {
      sum = sum + term;
      sum.spreads_ = spreads;
    }
  }

  Var zeros(const Shape& shape, DType dtype, Device device, Spreads spreads) const {
    return Var(slot_, -1, Tensor::zeros(shape, dtype, device), spreads.duals());
  }

  void down(size_t from, size_t to) {
    const bool observed = !tape_.observers_.empty();
    for (size_t id = from; id-- > to;) {
      if (observed) [[unlikely]]
        show(id);
      if (tape_.nodes_[id].kind == Tape::Kind::leaf)
        arrive(id);
      else
        pull(static_cast<int>(id));
      if (keep_ == Keep::nothing) tape_.release(tape_.nodes_[id]);
    }
  }

  void show(size_t id) const {
    if (need(static_cast<int>(id)) == Need::no) return;
    const Tape::Node& node = tape_.nodes_[id];
    const std::string name = node.parameter ? "parameter '" + node.parameter->name + "'"
                             : node.op      ? node.op->name
                                            : "leaf";
    const Var& sum = cotangents_[id];
    const Var g = sum.defined() ? sum : zeros(node.shape, node.dtype, node.device, node.spreads);
    for (Tape::Observer* observer : tape_.observers_)
      observer->arrived(g, name, static_cast<int64_t>(id), node.spreads);
  }

  // All uses of a leaf come after it on the tape, so its gradient is complete.
  void arrive(size_t id) {
    const Parameter* parameter = tape_.nodes_[id].parameter;
    Var& sum = cotangents_[id];
    if (!into_ || !sum.defined()) return;
    Tensor term = std::exchange(sum, {}).value();
    if (parameter) {
      const InMode outside(tape_, outside_);
      into_->arrived(*parameter, std::move(term), tape_, tape_.nodes_[id].spreads);
    } else if (id < count_) {  // not in a checkpoint's second run, of which nobody has a Var
      into_->add(slot_, static_cast<int>(id), term);
    }
  }

  void pull(int id) {
    const Tape::Node& node = tape_.nodes_[static_cast<size_t>(id)];
    const Op& op = *node.op;
    Tape::Pullback* p = node.pullbacks;  // stays where it is; the node may move when pullbacks record
    const bool always = op.replay == Replay::always;
    try {
      if (node.kind == Tape::Kind::checkpoint) {
        if (p) recompute(id, static_cast<Tape::Piece&>(*p), always);
        return;
      }
      Var g = cotangent(id, always);
      if (!g.defined() || !(always || need(id) != Need::no)) return;
      for (; p; p = p->next) {
        if (!always && need(p->input) == Need::no) continue;
        Var term = p->apply(g);
        if (term.defined() && p->input >= 0) {
          check(term, p->input);
          if (graph_ == Graph::create && !term.tracked()) tape_.refuse_exchanged(term.value(), "its gradient");
          add(p->input, std::move(term));
        }
      }
    } catch (Error& error) {
      error.happened_in("backward of " + op.name);
      throw;
    }
  }

  // What has reached this node; zeros if nothing did and it runs all the same.
  Var cotangent(int id, bool always) {
    Var g = need(id) == Need::result ? at(id) : std::move(at(id));
    const Tape::Node& node = tape_.nodes_[static_cast<size_t>(id)];
    if (!g.defined() && always) g = zeros(node.shape, node.dtype, node.device, node.spreads);
    return g;
  }

  void check(const Var& term, int input) const {
    const Tape::Node& node = tape_.nodes_[static_cast<size_t>(input)];
    require(term.shape() == node.shape && term.dtype() == node.dtype, "the gradient is ", term.dtype(), " ",
            term.shape(), " but the input is ", node.dtype, " ", node.shape);
  }

  // Records the checkpointed piece again at the end of the tape, walks it, and takes it off.
  void recompute(int first, Tape::Piece& piece, bool always) {
    Vars g;
    for (int i = 0; i < piece.count; ++i) g.push_back(cotangent(first + i, always));
    if (std::none_of(g.begin(), g.end(), [](const Var& v) { return v.defined(); })) return;
    const size_t begin = tape_.nodes_.size();
    std::optional<Temporary> temporary;
    if (graph_ == Graph::none) temporary.emplace(tape_);
    Vars again;
    {
      const InMode recording(tape_, {.recomputing = true});
      piece.apply({});
      again = std::exchange(piece.results, {});
    }
    const size_t end = tape_.nodes_.size();
    cotangents_.resize(end);
    require(again.size() == g.size(), "the piece had ", g.size(), " results, and has ", again.size(),
            " when it runs again");
    for (size_t i = 0; i < g.size(); ++i) {
      if (!g[i].defined()) continue;
      if (!again[i].tracked()) {
        tape_.refuse_exchanged(again[i].value(), "result " + text(i + 1));
        continue;
      }
      require(
          tape_.on_this(again[i], "its result") && again[i].shape() == g[i].shape() && again[i].dtype() == g[i].dtype(),
          "result ", i + 1, " was ", g[i].dtype(), " ", g[i].shape(), ", and is ", again[i].dtype(), " ",
          again[i].shape(), " when the piece runs again");
      add(again[i].id_, std::move(g[i]));
    }
    down(end, begin);
    if (temporary) cotangents_.resize(begin);
  }

  Tape& tape_;
  const Graph graph_;
  const Keep keep_;
  Gradients* const into_;
  TapeSlot* const slot_ = tape_.slot_;
  const Tape::Mode outside_ = tape_.mode_;
  const size_t count_;                                 // of nodes, when the walk began
  std::vector<Var, pool::Allocator<Var>> cotangents_;  // by node id
  std::vector<Need, pool::Allocator<Need>> needed_;    // empty: everything
};

void Tape::backward(const Var& loss, Gradients& into, Keep keep) {
  backward(loss, unit_seed(loss, "backward"), into, keep);
}

void Tape::backward(const Var& of, const Tensor& seed, Gradients& into, Keep keep) {
  must_be_walkable("backward");
  require(on_this(of, "backward: the loss"), "backward: the loss is not on this tape");
  if (!of.tracked()) refuse_exchanged(of.value(), "backward: the loss");
  // Among ranks even a constant loss takes part: others wait for this one's share, in the walk or at its end.
  const bool among_ranks = replays_ || group_count_ > 0 || into.has_ends();
  require(of.tracked() || among_ranks, "backward: the loss depends on nothing that is watched, so it has no gradient");
  require(seed.shape() == of.shape() && seed.dtype() == of.dtype(), "backward: the seed is ", seed.dtype(), " ",
          seed.shape(), ", the loss ", of.dtype(), " ", of.shape());
  into.forget_past_tapes();
  {
    struct Consume {  // also when a pullback throws: what was released cannot be walked again
      Tape* tape;
      ~Consume() {
        if (tape) tape->consume();
      }
    } const at_end{keep == Keep::nothing ? this : nullptr};
    Walk(*this, Graph::none, keep, &into).run(of, seed);
  }
  into.end_backward();
}

std::vector<Var> Tape::gradient(const Var& of, const std::vector<Var>& by, Graph graph) {
  return gradient(of, unit_seed(of, "gradient"), by, graph);
}

std::vector<Var> Tape::gradient(const Var& of, const Var& seed, const std::vector<Var>& by, Graph graph) {
  must_be_walkable("gradient");
  require(!of.slot_ || on_this(of, "gradient: the result"), "gradient: the result is on another tape");
  if (!of.tracked()) refuse_exchanged(of.value(), "gradient: the result");
  require(!seed.slot_ || on_this(seed, "gradient: the seed"), "gradient: the seed is on another tape");
  require(seed.shape() == of.shape() && seed.dtype() == of.dtype(), "gradient: the seed is ", seed.dtype(), " ",
          seed.shape(), ", the result ", of.dtype(), " ", of.shape());
  for (const Var& v : by)
    require(on_this(v, "gradient: a Var to differentiate by") && v.tracked(),
            "gradient: a Var to differentiate by is not watched on this tape");
  Walk walk(*this, graph, Keep::tape, nullptr);
  walk.restrict_to(by);
  if (of.tracked() || replays_) walk.run(of, seed);
  std::vector<Var> results;
  for (const Var& v : by) results.push_back(walk.result(v));
  return results;
}

bool Tape::on_this(const Var& x, const char* what) const {
  if (x.stale()) x.report_stale(what);
  return x.slot_ && x.slot_->tape == this;
}

}  // namespace weft
