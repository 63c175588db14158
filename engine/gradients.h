#pragma once
// Where backward leaves the gradients of parameters, and hooks that fire when they are there.
#include <functional>
#include <unordered_map>
#include <vector>

#include "engine/hooks.h"
#include "engine/var.h"

namespace weft {

template <class Key, class T>
using PooledMap =
    std::unordered_map<Key, T, std::hash<Key>, std::equal_to<Key>, pool::Allocator<std::pair<const Key, T>>>;
template <class T> using ByParameter = PooledMap<const Parameter*, T>;

// Where backward accumulates the gradients of parameters, for as many losses, backward passes and tapes as there are.
class Gradients {
 public:
  using Hook = std::function<void(const Parameter&, const Tensor& accumulated)>;

  Gradients() = default;
  // For several optimizers that share a backward: each gradient goes to the first of these that takes the parameter.
  explicit Gradients(std::vector<Gradients*> parts) : parts_(std::move(parts)) {}

  // The sum of all contributions; undefined for a parameter that took part in no backward.
  const Tensor& operator[](const Parameter& parameter) const;
  bool has(const Parameter& parameter) const { return (*this)[parameter].defined(); }

  // The same for what tape.watch(tensor) gave, of all backward passes over its tape. It has no hooks. Kept until
  // clear(); when the tape is gone, until the next backward.
  const Tensor& operator[](const Var& leaf) const;
  bool has(const Var& leaf) const { return (*this)[leaf].defined(); }

  // Fires once per backward for every parameter that took part in it, when its last contribution has been added. What a
  // hook computes on the tape is recorded as outside of the walk, but the tape cannot be walked again meanwhile. A hook
  // that a hook adds fires from the next parameter, or the next backward, on.
  HookHandle after_accumulate(Hook hook) { return hooks_.add(std::move(hook)); }

  // Fires at the end of every backward, after all hooks of its parameters and when the tape is used up, if it is.
  HookHandle after_backward(std::function<void()> hook) { return ends_.add(std::move(hook)); }

  // Where the sum of a parameter is to be kept, asked when its first contribution arrives: flat memory, for one. Empty
  // for a tensor of its own.
  using Place = std::function<Tensor(const Parameter&)>;
  void keep_in(Place place) { place_ = std::move(place); }

  // Which parameters may come here: all, unless this says otherwise. Others are an Error.
  using Takes = std::function<bool(const Parameter&)>;
  void take_only(Takes takes) { takes_ = std::move(takes); }
  bool takes(const Parameter& parameter) const;

  // Sees how a leaf is spread before its gradient is added, to refuse what would be summed over the wrong ranks.
  using Check = std::function<void(const Parameter&, const Tape&, Spreads leaf)>;
  void check_leaves(Check check) { check_ = std::move(check); }

  void add(const Parameter& parameter, const Tensor& term);  // what backward does, without the hooks
  void forget(const Parameter& parameter);
  void forget(const Var& leaf);
  void clear();  // forgets the gradients, keeps the hooks and the places

 private:
  friend class Tape;
  friend class Walk;
  struct Sum {
    Tensor value;
    bool placed = false;
    void add(const Tensor& term);
  };
  struct LeafSum : Sum {
    TapeSlot* slot = nullptr;
  };
  static uint64_t key(const Var& leaf);  // the tape's number and the node's
  void add(TapeSlot* slot, int id, const Tensor& term);
  void forget_past_tapes();
  Gradients& part_for(const Parameter& parameter) const;
  [[noreturn]] static void refuse(const Parameter& parameter);
  void arrived(const Parameter& parameter, Tensor term, const Tape& tape, Spreads leaf);
  void end_backward();
  bool has_ends() const;  // hooks that fire at the end of a backward

  std::vector<Gradients*> parts_;
  ByParameter<Sum> sums_;
  PooledMap<uint64_t, LeafSum> leaves_;
  Place place_;
  Takes takes_;
  Check check_;
  Hooks<const Parameter&, const Tensor&> hooks_;
  Hooks<> ends_;
};

}  // namespace weft
