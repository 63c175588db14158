// SPDX-License-Identifier: Apache-2.0
#pragma once
// The gradients that backward accumulates, and hooks that fire when they are complete.
#include <functional>
#include <unordered_map>
#include <vector>

#include "weft/engine/tape/hooks.h"
#include "weft/engine/tape/var.h"
#include "weft/engine/tape/waiting_sums.h"

namespace weft {

template <class Key, class T>
using PooledMap =
    std::unordered_map<Key, T, std::hash<Key>, std::equal_to<Key>, pool::Allocator<std::pair<const Key, T>>>;
template <class T> using ByParameter = PooledMap<const Parameter*, T>;

// Backward accumulates the gradients of parameters here, over any number of losses, backward passes and tapes.
class Gradients {
 public:
  using Hook = std::function<void(const Parameter&, const Tensor& accumulated)>;

  Gradients() = default;
  // For several optimizers that share a backward: a gradient goes to the first of these parts that takes its parameter.
  explicit Gradients(std::vector<Gradients*> parts) : parts_(std::move(parts)) {}

  // The sum of all contributions; undefined for a parameter that was in no backward.
  const Tensor& operator[](const Parameter& parameter) const;
  bool has(const Parameter& parameter) const;

  // The same for a leaf from tape.watch(tensor), over all backward passes over its tape. Leaves have no hooks. Their
  // gradients are kept until clear(), or until the next backward once the tape has been destroyed.
  const Tensor& operator[](const Var& leaf) const;
  bool has(const Var& leaf) const { return (*this)[leaf].defined(); }

  // The hook fires once per backward for every parameter in it, when the last contribution has been added. Ops that a
  // hook calls are recorded as they are outside of backward, but the hook cannot call backward or gradient on the tape.
  // If a hook adds another, that one fires from the next parameter on, or from the next backward.
  HookHandle after_accumulate(Hook hook) { return hooks_.add(std::move(hook)); }

  // For trainers: the hook fires just before those of after_accumulate. The last contribution is there, but may still
  // wait to be added. Who then reads the memory of a sum calls compute_sums() before.
  HookHandle after_arrival(std::function<void(const Parameter&)> hook) { return arrival_hooks_.add(std::move(hook)); }
  void compute_sums() const;

  // For trainers: the hook fires when a backward without a seed begins; that seed depends on the tape's groups.
  HookHandle before_backward(std::function<void(Tape&)> hook) { return begin_hooks_.add(std::move(hook)); }

  // The hook fires at the end of every backward, after the hooks of its parameters, and after backward has consumed the
  // tape, if it does.
  HookHandle after_backward(std::function<void()> hook) { return end_hooks_.add(std::move(hook)); }

  // For trainers: the hook fires during every backward, between the pullbacks of one operation and those of the next.
  // Communication that has been started can go on there.
  HookHandle between_pullbacks(std::function<void()> hook) { return between_hooks_.add(std::move(hook)); }

  // For trainers, like the next two: sets where the sum of a parameter is kept, such as in flat memory. It is called
  // when the first contribution arrives, or, if the place is `steady`, before that is computed there; if it returns an
  // empty tensor, the sum has a tensor of its own.
  using Place = std::function<Tensor(const Parameter&)>;
  void keep_in(Place place, bool steady = true) {
    place_ = std::move(place);
    steady_ = steady;
  }

  // Sets which parameters may have gradients here; by default all. Others are an Error.
  using Takes = std::function<bool(const Parameter&)>;
  void take_only(Takes takes) { takes_ = std::move(takes); }
  bool takes(const Parameter& parameter) const;

  // Sets a check of a leaf's placements before its gradient is added, to reject one that would be summed over the wrong
  // ranks.
  using Check = std::function<void(const Parameter&, const Tape&, Placements leaf)>;
  void check_leaves(Check check) { check_ = std::move(check); }

  void add(const Parameter& parameter, const Tensor& term);  // as backward does, but without hooks
  void forget(const Parameter& parameter);
  void forget(const Var& leaf);
  void clear();  // forgets the gradients, but not the hooks and the places

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
  [[noreturn]] static void reject(const Parameter& parameter);
  Tensor empty_place(const Parameter& parameter) const;
  Tensor add_later(const Parameter& parameter, Tensor sum, const Tensor& term);
  void arrived(const Parameter& parameter, Tensor term, const Tape& tape, Placements leaf);
  void begin_backward(Tape& tape);
  void passed_operation();
  void end_backward();
  bool has_end_hooks() const;

  std::vector<Gradients*> parts_;
  ByParameter<Sum> sums_;
  PooledMap<uint64_t, LeafSum> leaves_;
  mutable WaitingSums waiting_;  // those of a walk that goes on
  Place place_;
  bool steady_ = true;
  Takes takes_;
  Check check_;
  Hooks<const Parameter&> arrival_hooks_;
  Hooks<const Parameter&, const Tensor&> hooks_;
  Hooks<Tape&> begin_hooks_;
  Hooks<> between_hooks_, end_hooks_;
};

}  // namespace weft
