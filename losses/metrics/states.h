// SPDX-License-Identifier: Apache-2.0
#pragma once
// States of metrics: sums, means, extremes or rows of the samples so far, reduced over the ranks of a group. All states
// of one object share their collectives:
//
//   States states(comm);
//   const auto squares = states.sum("squares", sum(square(error), 0));
//   const auto largest = states.max("largest", abs(error));
//   squares.update(sum(square(more), 0));  // for each further micro-batch
//   states.exchange();
//   const Var penalty = largest.value() - sqrt(squares.value());
//
// Sums and means alone take one all_reduce of a vector. If there are other states, one all_gather sends every rank's
// vector to all ranks, which reduce it in the same order, so that a sum has the same bits either way. Uneven rows take
// one more small collective for their counts. The number of collectives does not depend on the data.
//
// Inputs are Varying, each rank's own, on the tape. Values are Replicated: bit-identical on every rank, with exact
// gradients even if ranks use them differently. Such a value is not a share of a loss, but keep_on(value, {0}, comm)
// is. bf16 becomes f32.
#include <memory>

#include "weft/collectives/communicator.h"
#include "weft/engine/tape/tape.h"

namespace weft {

class States {
  struct Entry;

 public:
  class State {
   public:
    // Adds x to the state. For a mean, x is the mean of `weight` samples.
    void update(const Var& x, double weight = 1) const;
    const Var& value() const;  // available after exchange()

   private:
    friend class States;
    State(States& states, Entry& entry) : states_(&states), entry_(&entry) {}
    States* states_;
    Entry* entry_;
  };

  explicit States(Communicator& comm);
  ~States();
  States(const States&) = delete;
  States& operator=(const States&) = delete;

  State sum(const char* name, const Var& x);
  // sum of weight * x / sum of weights, zero if all weights are zero. An x with zero weight may be anything, even NaN.
  State mean(const char* name, const Var& x, double weight);
  // Over the rows of x on all ranks, which may have different numbers of them; an infinity if there are none. Ranks
  // that attain the extreme share its gradient equally, as do such rows within a rank. A NaN makes value and gradient
  // NaN.
  State max(const char* name, const Var& x);
  State min(const char* name, const Var& x);
  State stack(const char* name, const Var& x);  // one x of each rank: (ranks, ...)
  State cat(const char* name, const Var& x);    // the rows of all ranks, which may have different numbers of them

  void exchange(Site site = Site::here());  // runs the collectives

 private:
  enum class Kind : uint8_t { sum, mean, max, min, stack, cat };  // in their order within the vector
  State add(Kind kind, const char* name, const Var& x, double weight = 1);
  void update(Entry& entry, const Var& x, double weight);
  int64_t width_before(Kind kind) const;
  Var gathered(const Var& mine, Site site);
  void complete(const Var& sums, const Var& columns, const Var& everyones);

  Communicator& comm_;
  std::vector<std::unique_ptr<Entry>> entries_;
  DType dtype_ = DType::f32;
  bool exchanged_ = false;
};

// The mean over the samples of all ranks, which are the rows of `per_sample`; zero if there are none.
Var mean_over_ranks(const char* name, const Var& per_sample, Communicator& comm, Site site = Site::here());

}  // namespace weft
