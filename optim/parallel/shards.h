// SPDX-License-Identifier: Apache-2.0
#pragma once
// A bundle whose parameters are divided among the ranks. Each rank keeps its part of the flat memory, with the
// gradients and the optimizer's state for this part. sharded.h gathers parameters when they are used.
#include <deque>

#include "weft/optim/parallel/bundle.h"
#include "weft/optim/parallel/summed_ranks.h"

namespace weft {

class Shards final : public Bundle {
  template <class V> static auto& at(V& by_place, int64_t place) { return by_place[static_cast<size_t>(place)]; }

 public:
  explicit Shards(BundlePlan plan);

  Communicator& comm() const { return *comm_; }
  const FlatLayout& layout() const { return parameters_.layout(); }
  const Parameter& parameter(int64_t place) const { return *at(layout().places(), place).parameter; }
  Range owned() const { return owned_; }
  // The elements of a place on this rank.
  Range piece(int64_t place) const { return intersection(owned_, at(layout().places(), place).range()); }
  // The number of elements in a range on each rank.
  Rows rows(Range range) const;

  // This rank's elements of a parameter as a leaf on the tape, for bf16 parameters the master weights; a constant if
  // the parameter is frozen.
  Var leaf(Tape& tape, int64_t place) const;
  const Parameter& shard(int64_t place) const { return at(shards_, place); }
  Tensor whole(int64_t place, Site site) const;
  void set(int64_t place, const Tensor& whole);

  Gradients& gradients() override { return gradients_; }  // of the shards
  Optimizer& optimizer() override { return optimizer_; }
  void reduce() override;
  const std::vector<bool>& present() const override { return present_; }
  Tensor sums() override { return gradient_.flat(); }
  void clear() override;

  std::vector<bool> in_use;   // by place: a running unit has gathered it
  std::vector<bool> reached;  // by place: a gradient has reached it in this step

 private:
  Shards(BundlePlan plan, const FlatLayout& layout);

  const std::shared_ptr<Communicator> comm_;
  const Range owned_;
  FlatParameters parameters_;
  Optimizer optimizer_;
  std::deque<Parameter> shards_;  // by place
  ByParameter<int64_t> place_of_shard_;
  FlatMemory gradient_;
  Gradients gradients_;
  SummedRanks summed_;
  std::vector<bool> present_;  // by place, on any rank
};

}  // namespace weft
