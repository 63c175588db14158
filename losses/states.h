#pragma once
// What a metric knows of the samples it has seen, completed over the ranks of a group. All states travel together:
//
//   States states(comm);
//   const auto squares = states.sum("squares", sum(square(error), 0));
//   const auto largest = states.max("largest", abs(error));
//   squares.update(sum(square(more), 0));  // of further micro-batches, as many as there are
//   states.exchange();
//   const Var spread = largest.value() - sqrt(squares.value());
//
// Sums and means alone are one all_reduce of a vector. With other states beside them every rank's vector goes to
// everybody (one all_gather) and is reduced there, in rank order, so a sum has the same bits either way. Uneven rows
// take one more, small meeting, for their counts. How many collectives these are does not depend on the data.
//
// What goes in is each rank's own (Varying, on the tape), and the values that come out are Replicated: the same bits
// on every rank, and differentiable exactly, also where ranks use them differently. Such a value is not a share of a
// loss; keep_on(value, {0}, comm) is. bf16 becomes f32.
#include <memory>

#include "collectives/communicator.h"
#include "engine/tape.h"

namespace weft {

class States {
  struct Entry;

 public:
  class State {
   public:
    // More of the same; of a mean, x stands for `weight` samples.
    void update(const Var& x, double weight = 1) const;
    const Var& value() const;  // after the exchange

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
  // sum of weight * x / sum of weights, zero where nothing has weight. What has no weight may be anything, also NaN.
  State mean(const char* name, const Var& x, double weight);
  // Over the rows of x on all ranks, of which there may be any number; an infinity if there is none. Ranks that attain
  // the extreme share its gradient equally, and on each the rows that do. NaN wins, and makes the gradient NaN.
  State max(const char* name, const Var& x);
  State min(const char* name, const Var& x);
  State stack(const char* name, const Var& x);  // one x of each rank: (ranks, ...)
  State cat(const char* name, const Var& x);    // the rows of all ranks, of which each may have any number

  void exchange(Site site = Site::here());

 private:
  enum class Kind : uint8_t { sum, mean, max, min, stack, cat };  // in the order in which they travel
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

// Over the samples of all ranks, which are the rows of x; zero where there is none.
Var mean_over_ranks(const char* name, const Var& per_sample, Communicator& comm, Site site = Site::here());

}  // namespace weft
