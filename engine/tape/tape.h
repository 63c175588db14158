// SPDX-License-Identifier: Apache-2.0
#pragma once
// Reverse-mode differentiation.
//
// A Tape lists operations in the order in which the program ran them; backward walks the list from the end. That order
// is the same on every rank of an SPMD program, so all ranks run the collectives of backward in the same order, too.
// One thread uses a tape at a time; a program may use any number of tapes at once.
#include <memory>
#include <vector>

#include "weft/engine/tape/arena.h"
#include "weft/engine/tape/gradients.h"
#include "weft/engine/tape/op.h"
#include "weft/engine/tape/partition.h"

namespace weft {

class Walk;

enum class Keep : uint8_t { nothing, tape };  // whether a tape can be walked again
enum class Graph : uint8_t { none, create };  // whether a query's results can be differentiated again

class Tape {
 public:
  Tape();
  ~Tape();
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  // Over any group of ranks, data are Varying and parameters are Replicated.
  Var constant(Tensor value);
  Var watch(Tensor value);                // a new leaf: backward adds its gradient to gradients[x]
  Var watch(const Parameter& parameter);  // returns the same Var each time
  // From here on watch(parameter) returns this Var; an empty Var ends that. For parameters that are computed, such as
  // from the shards of several ranks.
  void substitute(const Parameter& parameter, Var var);

  // Adds the gradients of `loss` to `into`. By default this consumes the tape, and frees its saved tensors on the way;
  // with Keep::tape the tape can be walked again. Without a seed the loss must be a scalar, and its placement over a
  // group decides the seed, so that the objective is the same for all placements: 1 on every rank if the ranks' losses
  // are terms of the objective (Partial, Varying) or have equal gradients (Invariant), 1 / size if every rank holds the
  // whole objective (Replicated). Only groups that the program has used on this tape, or declared, count. Of nested
  // groups the largest counts, of a grid all axes: docs/collectives.md, "Several groups on one tape".
  void backward(const Var& loss, Gradients& into, Keep keep = Keep::nothing);
  void backward(const Var& of, const Tensor& seed, Gradients& into, Keep keep = Keep::nothing);

  // The gradients of `y` with respect to each of `wrt`; zeros where y does not depend on it. This is a pure query: it
  // accumulates nothing, fires no hook, and keeps the tape. With Graph::create the results are on the tape and can be
  // differentiated again.
  std::vector<Var> gradient(const Var& y, const std::vector<Var>& wrt, Graph graph = Graph::none);
  std::vector<Var> gradient(const Var& y, const Var& seed, const std::vector<Var>& wrt, Graph graph = Graph::none);

  // The groups of ranks for which values have placements. A tape learns the groups that exist when it first meets one,
  // since collectives over one group change placements over the others. `find_group` gives the index of one that this
  // tape knows, or -1.
  using Group = std::shared_ptr<const Partition>;
  int find_group(const Partition& partition) const;
  int learn(const Group& group);  // returns the index
  // The placement of a loss over a group matters for its seed if the program has used the group on this tape.
  void use_group(int group) { groups_[static_cast<size_t>(group)].used = true; }
  bool uses_group(int group) const { return groups_[static_cast<size_t>(group)].used; }
  int groups() const { return static_cast<int>(groups_.size()); }
  const Partition& partition(int group) const { return *groups_[static_cast<size_t>(group)].partition; }
  // True except inside a walk whose results are not recorded.
  bool follows_placements() const { return mode_.placements; }

  // Observers are called on the events of the tape; see observer.h.
  class Observer;
  using Observers = std::vector<Observer*, pool::Allocator<Observer*>>;
  void observe(Observer& observer) { observers_.push_back(&observer); }
  void own(std::unique_ptr<Observer> observer);  // keeps an observer as long as the tape lives
  void forget(Observer& observer) { std::erase(observers_, &observer); }
  const Observers& observers() const { return observers_; }

  // True inside the second run of a checkpoint, whose side effects have happened already.
  bool recomputing() const { return mode_.recomputing; }
  int64_t size() const { return static_cast<int64_t>(nodes_.size()); }
  // The node of x; the last node so far if x is not tracked.
  int64_t place_of(const Var& x) const { return x.tracked() ? x.id_ : size() - 1; }

  // While an object of this class lives, operations on the tape are computed but not recorded.
  class Pause {
   public:
    explicit Pause(Tape* tape);
    ~Pause();
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;

   private:
    Tape* tape_;
    bool before_;
  };

  // While an object of this class lives, these parameters are constants for operations on the tape. A generator's loss
  // depends on its adversary, for example, whose gradients are not needed. A checkpoint runs again with the parameters
  // that were frozen when it was recorded.
  class Freeze {
   public:
    Freeze(Tape& tape, const std::vector<Parameter*>& parameters);
    ~Freeze();
    Freeze(const Freeze&) = delete;
    Freeze& operator=(const Freeze&) = delete;

   private:
    friend class Tape;
    using List = std::shared_ptr<const std::vector<const Parameter*>>;  // sorted; null: none
    Freeze(Tape& tape, List list);

    Tape& tape_;
    const List before_;
  };
  bool frozen(const Parameter& parameter) const;

 private:
  friend class Recording;
  friend class Walk;
  friend class TapeLog;
  friend Vars checkpoint(PooledFunction<Vars(std::span<const Var>)>, Vars);
  friend Var with_placements(Var, Placements);

  // One term of an op's derivative, stored in the arena: computes the cotangent of one input from that of the output.
  struct Pullback {
    int input;
    Pullback* next = nullptr;
    explicit Pullback(int input) : input(input) {}
    virtual ~Pullback() = default;
    virtual Var apply(const Var& g) = 0;
  };
  enum class Kind : uint8_t { leaf, op, checkpoint };
  struct Mode {
    bool recording = true;
    bool placements = true;    // follows_placements
    bool recomputing = false;  // inside a checkpoint's second run
  };
  struct Node {
    const Op* op = nullptr;                // null for leaves
    const Parameter* parameter = nullptr;  // of a leaf, if it is one
    Pullback* pullbacks = nullptr;
    Placements placements;
    Kind kind = Kind::leaf;
    DType dtype = DType::f32;
    Device device = Device::cpu;
    Shape shape;
  };
  // A checkpoint's function, to be run again. The first of its results has it, since a walk comes to that node last,
  // when all their cotangents are complete. It has no input (-1) and hands out nothing: the walk visits `results`.
  struct Piece final : Pullback {
    PooledFunction<Vars(std::span<const Var>)> run;
    Vars inputs;
    const int count;  // of results
    Tape& tape;
    const Freeze::List frozen = tape.frozen_;  // when this was recorded
    Vars results = {};                         // of the second run, for the walk
    Piece(decltype(run) run, Vars inputs, int count, Tape& tape)
        : Pullback(-1), run(std::move(run)), inputs(std::move(inputs)), count(count), tape(tape) {}
    Var apply(const Var&) override {
      const Freeze again(tape, frozen);
      results = run(inputs);
      return {};
    }
  };
  struct KnownGroup {
    Group partition;
    bool used = false;
  };

  Var leaf(Tensor value, const Parameter* parameter, Placement placement);
  Tensor unit_seed(const Var& loss, const char* who) const;
  double holders(Placements loss, const char* who) const;
  void require_usable(const char* what) const;
  void require_walkable(const char* what) const;
  bool on_this(const Var& x, const char* what) const;
  void reject_exchanged(const Tensor& x, const std::string& who) const;
  Tensor place_of_term(const Var* input, const Shape& shape, DType dtype) const;
  void release(Node& node);
  void truncate(size_t size);
  void consume();

  TapeSlot* slot_;         // replaced by another during the second run of a checkpoint
  const uint32_t number_;  // of the tape's own slot
  std::vector<Node, pool::Allocator<Node>> nodes_;
  Arena arena_;
  ByParameter<Var> parameters_;
  std::vector<KnownGroup, pool::Allocator<KnownGroup>> groups_;
  Observers observers_;
  std::vector<std::unique_ptr<Observer>> owned_;
  Mode mode_;
  Walk* walk_ = nullptr;  // the one that goes on
  Freeze::List frozen_;
  bool consumed_ = false;
  bool replays_ = false;         // whether an op with Replay::always has been recorded
  bool replay_skipped_ = false;  // whether such an op has run while recording was paused
};

}  // namespace weft
