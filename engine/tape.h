#pragma once
// Reverse-mode differentiation.
//
// A Tape lists operations in the order the program ran them; backward walks the list from the end. That order is the
// same on every rank of an SPMD program, so collectives on the tape meet their partners in backward as they did in
// forward. A tape belongs to one thread at a time; any number of tapes may be at work at once.
#include <array>
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "engine/arena.h"
#include "engine/op.h"
#include "engine/pooled_function.h"
#include "engine/tensor.h"

namespace weft {

class Tape;

// A Tensor in a computation. A plain Tensor converts to a constant, so every op also works without a tape; how it is
// spread over ranks is then unsaid. Vars may be kept after their tape is gone, but then only to read their values.
class Var {
 public:
  Var() = default;
  Var(Tensor constant) : Var(nullptr, -1, std::move(constant)) {}  // NOLINT: implicit on purpose

  // Error if the values were changed in place since this Var was made: a gradient computed from them would be wrong.
  const Tensor& value() const {
    if (value_.version() != version_) [[unlikely]]
      report_change();
    return value_;
  }
  const Shape& shape() const { return value_.shape(); }
  int64_t size() const { return value_.size(); }
  DType dtype() const { return value_.dtype(); }
  Device device() const { return value_.device(); }
  bool defined() const { return value_.defined(); }

  Spreads spreads() const { return spreads_; }  // how it relates to its counterparts on other ranks
  Tape* tape() const { return tape_; }
  bool tracked() const { return id_ >= 0; }  // whether gradients can flow to it

 private:
  friend class Tape;
  friend class Recording;
  friend class Walk;
  friend Var checkpoint(PooledFunction<Var(std::span<const Var>)>, std::vector<Var, pool::Allocator<Var>>);
  friend Var with_spreads(Var x, Spreads spreads);
  Var(Tape* tape, int id, Tensor value, Spreads spreads = {})
      : tape_(tape), id_(id), version_(value.version()), spreads_(spreads), value_(std::move(value)) {}
  [[noreturn]] void report_change() const;

  Tape* tape_ = nullptr;
  int id_ = -1;
  uint32_t version_ = 0;
  Spreads spreads_;
  Tensor value_;
};

using Vars = std::vector<Var, pool::Allocator<Var>>;

// The same node, seen as spread otherwise: what collectives make of their results. Trusted, not checked.
Var with_spreads(Var x, Spreads spreads);
Var same_everywhere(Tensor value);             // a constant that all ranks have
Var derived(Tensor value, const Var& source);  // a constant made from source's values, such as a mask: spread alike

// A trainable tensor. Its address is its identity.
struct Parameter {
  std::string name;
  Tensor value;

  Parameter(std::string name, Tensor value) : name(std::move(name)), value(std::move(value)) {}
  Parameter(const Parameter&) = delete;
  Parameter& operator=(const Parameter&) = delete;
};

template <class T>
using ByParameter =
    std::unordered_map<const Parameter*, T, std::hash<const Parameter*>, std::equal_to<const Parameter*>,
                       pool::Allocator<std::pair<const Parameter* const, T>>>;

// Where backward accumulates the gradients of parameters, for as many losses, backward passes and tapes as there are.
class Gradients {
 public:
  using Hook = std::function<void(const Parameter&, const Tensor& accumulated)>;

  // The sum of all contributions; undefined for a parameter that took part in no backward.
  const Tensor& operator[](const Parameter& parameter) const;
  bool has(const Parameter& parameter) const { return (*this)[parameter].defined(); }

  // Fires once per backward for every parameter that took part in it, when its last contribution has been added.
  void after_accumulate(Hook hook) { hooks_.push_back(std::move(hook)); }

  // Fires at the end of every backward, after all hooks of its parameters.
  void after_backward(std::function<void()> hook) { ends_.push_back(std::move(hook)); }

  // Where the sum of a parameter is to be kept, asked when its first contribution arrives: flat memory, for one. Empty
  // for a tensor of its own.
  using Place = std::function<Tensor(const Parameter&)>;
  void keep_in(Place place) { place_ = std::move(place); }

  void add(const Parameter& parameter, const Tensor& term);  // what backward does, without the hooks
  void forget(const Parameter& parameter);
  void clear();  // forgets the gradients, keeps the hooks and the places

 private:
  friend class Walk;
  struct Sum {
    Tensor value;
    bool placed = false;
  };
  ByParameter<Sum> sums_;
  Place place_;
  std::vector<Hook> hooks_;
  std::vector<std::function<void()>> ends_;
};

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
  Var watch(Tensor value);                // a new leaf
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
  bool follows_spreads() const { return spreading_; }  // wherever a gradient may be asked for, but not inside a walk

  // Are shown what happens on the tape while they are there; see observer.h.
  class Observer;
  using Observers = std::vector<Observer*, pool::Allocator<Observer*>>;
  void observe(Observer& observer) { observers_.push_back(&observer); }
  void own(std::unique_ptr<Observer> observer);  // one that observes this tape: it is there as long as the tape
  void forget(Observer& observer) { std::erase(observers_, &observer); }
  const Observers& observers() const { return observers_; }

  bool recomputing() const { return recomputing_; }  // inside a checkpoint's second run: side effects happened already
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

 private:
  friend class Recording;
  friend class Walk;
  friend Var checkpoint(PooledFunction<Var(std::span<const Var>)>, std::vector<Var, pool::Allocator<Var>>);
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
  struct Group {
    const void* key = nullptr;
    Members members = {};
  };

  Var leaf(Tensor value, const Parameter* parameter, Spread spread);
  Tensor unit_seed(const Var& loss, const char* who) const;
  double holders(Spreads loss, const char* who) const;
  void must_be_usable(const char* what) const;
  void release(Node& node);
  void truncate(size_t size);
  void consume();

  std::vector<Node, pool::Allocator<Node>> nodes_;
  Arena arena_;
  ByParameter<Var> parameters_;
  std::array<Group, Spreads::max_groups> groups_{};
  int group_count_ = 0;
  Observers observers_;
  std::vector<std::unique_ptr<Observer>> owned_;
  bool recording_ = true;
  bool spreading_ = true;
  bool recomputing_ = false;
  bool consumed_ = false;
  bool replays_ = false;         // an op that must always replay has been recorded
  bool replay_skipped_ = false;  // one ran while paused
};

// Trades time for memory: runs `f` without saving anything and runs it again in backward. `f` must compute the same
// again (draw random numbers from explicit keys, as dropout does).
Var checkpoint(PooledFunction<Var(std::span<const Var>)> f, Vars inputs);

}  // namespace weft
