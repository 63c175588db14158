// One walk over the tape from its end, shared by backward, gradient queries and checkpoints.
#include <algorithm>

#include "engine/backend.h"
#include "engine/observer.h"
#include "engine/ops/elementwise.h"
#include "engine/record.h"

namespace weft {

class Walk {
 public:
  Walk(Tape& tape, Graph graph, Keep keep, Gradients* into)
      : tape_(tape), graph_(graph), keep_(keep), into_(into), cotangents_(tape.nodes_.size()) {}

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
    const RecordingState state(tape_, graph_ == Graph::create);
    // On the tape, so that collectives in pullbacks are recorded on every rank, whether or not they meet a tracked
    // value.
    if (of.tracked()) add(of.id_, seed.tape_ ? seed : tape_.constant(seed.value()));
    const bool on_all_ranks = into_ || tape_.replays_;  // a query may be one rank's own where nothing is exchanged
    for (Tape::Observer* observer : tape_.observers_) observer->walk_begins(on_all_ranks);
    down(cotangents_.size(), 0);
    for (Tape::Observer* observer : tape_.observers_) observer->walk_ends(on_all_ranks);
  }

  void end() {
    for (const auto& hook : into_->ends_) hook();
  }
  static bool has_hooks_at_its_end(const Gradients& into) { return !into.ends_.empty(); }

  Var result(const Var& by) {
    if (by.tracked() && at(by.id_).defined()) return at(by.id_);
    return zeros(by.shape(), by.dtype(), by.device(), by.spreads());
  }

 private:
  enum class Need : uint8_t { no, path, result };

  struct RecordingState {
    Tape& tape;
    bool recording, spreading, recomputing;
    RecordingState(Tape& tape, bool record, bool recompute = false)
        : tape(tape), recording(tape.recording_), spreading(tape.spreading_), recomputing(tape.recomputing_) {
      tape.recording_ = tape.spreading_ = record;
      tape.recomputing_ = recompute;
    }
    ~RecordingState() {
      tape.recording_ = recording;
      tape.spreading_ = spreading;
      tape.recomputing_ = recomputing;
    }
  };

  Var& at(int id) { return cotangents_[static_cast<size_t>(id)]; }
  Need need(int id) const {
    return static_cast<size_t>(id) < needed_.size() ? needed_[static_cast<size_t>(id)] : Need::path;
  }

  // Cotangents are immutable for everyone but this sum, and for it only once nobody else holds them.
  void add(int id, Var term) {
    // What a Replicated value's users send back are parts of its gradient, whatever each of them was.
    const Spreads spreads = tape_.nodes_[static_cast<size_t>(id)].spreads.duals();
    term.spreads_ = spreads;
    term.tape_ = &tape_;  // or collectives that it meets next would be recorded on other ranks only
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
    return Var(&tape_, -1, Tensor::zeros(shape, dtype, device), spreads.duals());
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
    if (!into_ || !parameter || !sum.defined()) return;
    into_->add(*parameter, sum.value());
    sum = {};
    for (const auto& hook : into_->hooks_) hook(*parameter, (*into_)[*parameter]);
  }

  void pull(int id) {
    const Tape::Node& node = tape_.nodes_[static_cast<size_t>(id)];
    Var g = need(id) == Need::result ? at(id) : std::move(at(id));
    const bool always = node.op->replay == Replay::always;
    if (!g.defined() && always) g = zeros(node.shape, node.dtype, node.device, node.spreads);
    if (!g.defined() || !(always || need(id) != Need::no)) return;
    const Op& op = *node.op;
    Tape::Pullback* p = node.pullbacks;  // stays where it is; the node may move when pullbacks record
    try {
      if (node.kind == Tape::Kind::checkpoint) return recompute(*p, g);
      for (; p; p = p->next) {
        if (!always && need(p->input) == Need::no) continue;
        Var term = p->apply(g);
        if (term.defined() && p->input >= 0) {
          check(term, p->input);
          add(p->input, std::move(term));
        }
      }
    } catch (Error& error) {
      error.happened_in("backward of " + op.name);
      throw;
    }
  }

  void check(const Var& term, int input) const {
    const Tape::Node& node = tape_.nodes_[static_cast<size_t>(input)];
    require(term.shape() == node.shape && term.dtype() == node.dtype, "the gradient is ", term.dtype(), " ",
            term.shape(), " but the input is ", node.dtype, " ", node.shape);
  }

  // Records the checkpointed piece again at the end of the tape, walks it, and takes it off.
  void recompute(Tape::Pullback& piece, const Var& g) {
    const size_t begin = tape_.nodes_.size();
    const Arena::Mark mark = tape_.arena_.mark();
    Var again;
    {
      const RecordingState state(tape_, true, true);
      again = piece.apply(g);
    }
    const size_t end = tape_.nodes_.size();
    cotangents_.resize(end);
    if (again.tracked()) add(again.id_, g);
    down(end, begin);
    if (graph_ == Graph::create) return;
    cotangents_.resize(begin);
    again = {};
    tape_.truncate(begin);
    tape_.arena_.rewind(mark);
  }

  Tape& tape_;
  const Graph graph_;
  const Keep keep_;
  Gradients* const into_;
  std::vector<Var, pool::Allocator<Var>> cotangents_;  // by node id
  std::vector<Need, pool::Allocator<Need>> needed_;    // empty: everything
};

Tensor Tape::unit_seed(const Var& loss, const char* who) const {
  require(loss.defined(), who, ": the loss is an empty Var");
  require(loss.size() == 1, who, ": the loss must be a scalar, not ", loss.shape(),
          "; reduce it with sum or mean, or pass a seed");
  return Tensor::full(loss.shape(), 1 / holders(loss.spreads(), who), loss.dtype(), loss.device());
}

static std::string text(const Tape::Members& ranks) {
  std::string list;
  for (const int rank : ranks) list += (list.empty() ? "{" : ", ") + std::to_string(rank);
  return list + "}";
}

// How many ranks hold all of the loss.
double Tape::holders(Spreads loss, const char* who) const {
  double count = 1;
  for (int i = 0; i < group_count_; ++i) {
    const Members& mine = groups_[static_cast<size_t>(i)].members;
    if (loss.in(i) == Spread::unsaid)
      fail({who, ": it is not said how the loss is spread over ranks ", text(mine), "; ", how_to_say,
            ", or pass a seed"});
    if (loss.in(i) == Spread::varying) continue;
    bool largest = true;
    for (int j = 0; j < group_count_; ++j) {
      if (j == i || loss.in(j) == Spread::varying) continue;
      const Members& other = groups_[static_cast<size_t>(j)].members;
      Members shared;
      std::set_intersection(mine.begin(), mine.end(), other.begin(), other.end(), std::back_inserter(shared));
      const bool inside = shared.size() == mine.size(), around = shared.size() == other.size();
      const bool nested = (inside || around) && loss.in(i) == loss.in(j);
      if (shared.size() > 1 && !nested)
        fail({who, ": the loss is ", text(loss.in(i)), " over ranks ", text(mine), " and ", text(loss.in(j)),
              " over ranks ", text(other), ", so it is not known how often it counts; pass a seed"});
      largest = largest && !(inside && (!around || j < i));
    }
    const bool whole = loss.in(i) == Spread::replicated || loss.in(i) == Spread::same;
    if (whole && largest) count *= static_cast<double>(mine.size());
  }
  return count;
}

void Tape::backward(const Var& loss, Gradients& into, Keep keep) {
  backward(loss, unit_seed(loss, "backward"), into, keep);
}

void Tape::backward(const Var& of, const Tensor& seed, Gradients& into, Keep keep) {
  must_be_usable("backward");
  require(of.tape_ == this, "backward: the loss is not on this tape");
  // Among ranks even a constant loss takes part: others wait for this one's share, in the walk or at its end.
  const bool among_ranks = replays_ || group_count_ > 0 || Walk::has_hooks_at_its_end(into);
  require(of.tracked() || among_ranks, "backward: the loss depends on nothing that is watched, so it has no gradient");
  require(seed.shape() == of.shape() && seed.dtype() == of.dtype(), "backward: the seed is ", seed.dtype(), " ",
          seed.shape(), ", the loss ", of.dtype(), " ", of.shape());
  struct Consume {  // also when a pullback throws: what was released cannot be walked again
    Tape* tape;
    ~Consume() {
      if (tape) tape->consume();
    }
  } const at_end{keep == Keep::nothing ? this : nullptr};
  Walk walk(*this, Graph::none, keep, &into);
  walk.run(of, seed);
  walk.end();
}

std::vector<Var> Tape::gradient(const Var& of, const std::vector<Var>& by, Graph graph) {
  return gradient(of, unit_seed(of, "gradient"), by, graph);
}

std::vector<Var> Tape::gradient(const Var& of, const Var& seed, const std::vector<Var>& by, Graph graph) {
  must_be_usable("gradient");
  require(!of.tape_ || of.tape_ == this, "gradient: the result is on another tape");
  require(seed.shape() == of.shape() && seed.dtype() == of.dtype(), "gradient: the seed is ", seed.dtype(), " ",
          seed.shape(), ", the result ", of.dtype(), " ", of.shape());
  for (const Var& v : by)
    require(v.tape_ == this && v.tracked(), "gradient: a Var to differentiate by is not watched on this tape");
  Walk walk(*this, graph, Keep::tape, nullptr);
  walk.restrict_to(by);
  if (of.tracked() || replays_) walk.run(of, seed);
  std::vector<Var> results;
  for (const Var& v : by) results.push_back(walk.result(v));
  return results;
}

}  // namespace weft
