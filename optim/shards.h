#pragma once
// The parameters of a bundle, divided among the ranks: each keeps its part of their flat memory, and the gradients and
// the optimizer's state for that. sharded.h gathers them where they are used.
#include <deque>

#include "optim/bundle.h"
#include "optim/summed_ranks.h"

namespace weft {

class Shards final : public Bundle {
  template <class V> static auto& at(V& by_place, int64_t place) { return by_place[static_cast<size_t>(place)]; }

 public:
  explicit Shards(BundlePlan plan);

  Communicator& comm() const { return *comm_; }
  const FlatLayout& layout() const { return parameters_.layout(); }
  const Parameter& parameter(int64_t place) const { return *at(layout().places(), place).parameter; }
  Range owned() const { return owned_; }
  Range piece(int64_t place) const { return common(owned_, at(layout().places(), place).range()); }  // this rank's
  Rows rows(Range range) const;                                                                      // each rank's

  // This rank's elements of a parameter as a leaf of the tape, of bf16 parameters the master weights; a constant where
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

  std::vector<bool> in_use, reached;  // by place: in a unit at work; in this step, by a gradient

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
