#pragma once
// Reverse-mode differentiation.
//
// A Tape lists operations in the order the program ran them; backward walks the list from the end. That order is the
// same on every rank of an SPMD program, so collectives on the tape meet their partners in backward as they did in
// forward. A tape belongs to one thread at a time; any number of tapes may be at work at once.
#include <array>
#include <memory>
#include <vector>

#include "engine/arena.h"
#include "engine/gradients.h"
#include "engine/op.h"

namespace weft {

enum class Keep : uint8_t { nothing, tape };  // whether a tape can be walked again
enum class Graph : uint8_t { none, create };  // whether a query's results can be differentiated in turn

class Tape {
 public:
  Tape();
  ~Tape();
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  // Over any group of ranks data are taken to be Varying and parameters to be Replicated.
  Var constant(Tensor value);
  Var watch(Tensor value);                // a new leaf: backward leaves its gradient in gradients[x]
  Var watch(const Parameter& parameter);  // the same Var each time
  // From here on watch(parameter) gives this Var, until it is given another; an empty one ends that. For parameters
  // that are made of something else, such as the shards of several ranks.
  void stand_in(const Parameter& parameter, Var var);

  // Adds the gradients of `loss` to `into`. By default this uses the tape up, releasing what it saved as it goes; with
  // Keep::tape it can be walked again. Without a seed the loss must be a scalar; the walk then begins with what makes
  // the objective one and the same however the loss is spread over a group: 1 on every rank where the ranks' losses add
  // up to it (Partial, Varying) or have equal gradients (Invariant), 1 / size where every rank holds all of it
  // (Replicated). Of groups within one another the largest counts; others are taken for the axes of a grid of ranks.
  void backward(const Var& loss, Gradients& into, Keep keep = Keep::nothing);
  void backward(const Var& of, const Tensor& seed, Gradients& into, Keep keep = Keep::nothing);

  // The gradient of `of` by each of `by`, zeros where it does not depend on it. A pure query: nothing is accumulated,
  // no hook fires, the tape stays. With Graph::create the results are on the tape and can be differentiated again.
  std::vector<Var> gradient(const Var& of, const std::vector<Var>& by, Graph graph = Graph::none);
  std::vector<Var> gradient(const Var& of, const Var& seed, const std::vector<Var>& by, Graph graph = Graph::none);

  // The number by which spreads know a group of ranks on this tape, or -1 before it is given its members: numbers of
  // ranks in the whole job, this one among them. `key` is the group's identity.
  using Members = std::vector<int, pool::Allocator<int>>;
  int group(const void* key) const;
  int group(const void* key, Members members);
  int groups() const { return group_count_; }
  const Members& members(int group) const { return groups_[static_cast<size_t>(group)].members; }
  // Wherever a gradient may be asked for, but not inside a walk.
  bool follows_spreads() const { return mode_.spreading; }

  // Are shown what happens on the tape while they are there; see observer.h.
  class Observer;
  using Observers = std::vector<Observer*, pool::Allocator<Observer*>>;
  void observe(Observer& observer) { observers_.push_back(&observer); }
  void own(std::unique_ptr<Observer> observer);  // one that observes this tape: it is there as long as the tape
  void forget(Observer& observer) { std::erase(observers_, &observer); }
  const Observers& observers() const { return observers_; }

  // Inside a checkpoint's second run: side effects happened already.
  bool recomputing() const { return mode_.recomputing; }
  int64_t size() const { return static_cast<int64_t>(nodes_.size()); }
  int64_t place_of(const Var& x) const { return x.tracked() ? x.id_ : size() - 1; }  // or what it comes after

  // While one exists, operations on this tape are computed but not recorded.
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

  // While one exists, these parameters are constants to what is recorded on the tape: a generator's loss goes through
  // its adversary, whose gradients nobody wants. A checkpoint keeps to it when it runs again.
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
  friend Vars checkpoint(PooledFunction<Vars(std::span<const Var>)>, Vars);
  friend Var with_spreads(Var, Spreads);

  // One term of an op's derivative, stored in the arena: how the output's cotangent becomes that of one input.
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
    bool spreading = true;     // follows_spreads
    bool recomputing = false;  // inside a checkpoint's second run
  };
  struct Node {
    const Op* op = nullptr;                // null for leaves
    const Parameter* parameter = nullptr;  // of a leaf, if it is one
    Pullback* pullbacks = nullptr;
    Kind kind = Kind::leaf;
    DType dtype = DType::f32;
    Device device = Device::cpu;
    Spreads spreads;
    Shape shape;
  };
  // What a checkpoint runs again. Its results are nodes one behind the other, and the first of them has it: by then the
  // cotangents of all are complete.
  struct Piece final : Pullback {
    PooledFunction<Vars(std::span<const Var>)> run;
    Vars inputs;
    const int count;  // of results
    Tape& tape;
    const Freeze::List frozen = tape.frozen_;  // when this was recorded
    Vars results = {};                         // of the second run, for the walk to take
    Piece(decltype(run) run, Vars inputs, int count, Tape& tape)
        : Pullback(-1), run(std::move(run)), inputs(std::move(inputs)), count(count), tape(tape) {}
    Var apply(const Var&) override {
      const Freeze again(tape, frozen);
      results = run(inputs);
      return {};
    }
  };
  struct Group {
    const void* key = nullptr;
    Members members = {};
  };

  Var leaf(Tensor value, const Parameter* parameter, Spread spread);
  Tensor unit_seed(const Var& loss, const char* who) const;
  double holders(Spreads loss, const char* who) const;
  void must_be_usable(const char* what) const;
  void must_be_walkable(const char* what) const;
  bool on_this(const Var& x, const char* what) const;
  void refuse_exchanged(const Tensor& x, const std::string& who) const;
  void release(Node& node);
  void truncate(size_t size);
  void consume();

  TapeSlot* slot_;         // what is recorded in a checkpoint's second run has another, which ends with it
  const uint32_t number_;  // of the tape itself
  std::vector<Node, pool::Allocator<Node>> nodes_;
  Arena arena_;
  ByParameter<Var> parameters_;
  std::array<Group, Spreads::max_groups> groups_{};
  int group_count_ = 0;
  Observers observers_;
  std::vector<std::unique_ptr<Observer>> owned_;
  Mode mode_;
  bool walking_ = false;
  Freeze::List frozen_;
  bool consumed_ = false;
  bool replays_ = false;         // an op that must always replay has been recorded
  bool replay_skipped_ = false;  // one ran while paused
};

// Trades time for memory: runs `f` without saving anything and runs it again in backward. `f` must compute the same
// again (draw random numbers from explicit keys, as dropout does).
Var checkpoint(PooledFunction<Var(std::span<const Var>)> f, Vars inputs);
// Several results, of which any may be used. Those without a floating type have no gradient.
Vars checkpoint(PooledFunction<Vars(std::span<const Var>)> f, Vars inputs);

}  // namespace weft
