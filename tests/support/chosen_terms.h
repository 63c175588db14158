// SPDX-License-Identifier: Apache-2.0
#pragma once
// Backward passes that give selected parameters given gradients, different on every rank and in every pass.
#include <deque>

#include "tests/support/on_ranks.h"
#include "weft/collectives/placement_conversions.h"
#include "weft/engine/ops/reduce.h"
#include "weft/optim/parallel/sync.h"

namespace weft {

class ChosenTerms {
 public:
  explicit ChosenTerms(Communicator& comm, DType dtype = DType::f64, Device device = Device::cpu) : comm_(comm) {
    for (const Shape& shape : {Shape{3}, Shape{2, 2}, Shape{}, Shape{1100}, Shape{40}, Shape{700}})
      parameters_.emplace_back("p" + std::to_string(parameters_.size()), Tensor::full(shape, 0.5, dtype, device));
  }

  using Choice = std::vector<int>;  // indices of parameters
  static constexpr int count = 6;
  const Parameter& operator[](int i) const { return parameters_[static_cast<size_t>(i)]; }
  FlatLayout layout() {
    std::vector<Parameter*> all;
    for (Parameter& p : parameters_) all.push_back(&p);
    return FlatLayout(all);
  }

  Tensor term(int rank, int parameter, int pass) const {
    const Tensor& value = (*this)[parameter].value;
    return data_of(rank, value.shape(), 1 + pass * count + parameter, value.dtype()).to(value.device());
  }
  Var loss(Tape& tape, const Choice& chosen, int pass) const {
    declare_group(tape, comm_);
    Var total;
    for (const int p : chosen) {
      const Var part = cast(sum(tape.watch((*this)[p]) * tape.constant(term(number(comm_), p, pass))), DType::f64);
      total = total.defined() ? total + part : part;
    }
    return total;
  }
  void backward(const Choice& chosen, int pass, Gradients& into) const {
    if (chosen.empty()) return;
    Tape tape;
    tape.backward(loss(tape, chosen, pass), into);
  }

  // This rank's part of the sum for a parameter.
  Tensor owned(const GradientSync& sync, const FlatLayout& layout, int parameter) const {
    const Range mine = intersection(layout.places()[static_cast<size_t>(parameter)].range(), sync.owned());
    if (mine.size() == 0) return sync.reduced().slice(0, 0);
    return sync.reduced().slice(mine.first - sync.owned().first, mine.last - sync.owned().first);
  }
  // The same part of a complete gradient.
  Tensor owned(const GradientSync& sync, const FlatLayout& layout, int parameter, const Tensor& whole) const {
    const Place& place = layout.places()[static_cast<size_t>(parameter)];
    const Range mine = intersection(place.range(), sync.owned());
    const Tensor flat = whole.reshape({whole.size()});
    return mine.size() == 0 ? flat.slice(0, 0) : flat.slice(mine.first - place.begin, mine.last - place.begin);
  }

 private:
  Communicator& comm_;
  std::deque<Parameter> parameters_;
};

inline constexpr GradientSync::When whens[] = {GradientSync::When::at_finish, GradientSync::When::in_last_pass,
                                               GradientSync::When::in_every_pass};

// When reductions begin, how large buckets are, and whether a rank gets everything or its shard, and may free the rest.
inline std::vector<GradientSync::Options> every_way(std::initializer_list<int64_t> buckets = {1, 50, 1 << 20}) {
  std::vector<GradientSync::Options> all;
  for (const auto when : whens)
    for (const int64_t bucket : buckets)
      for (const int kind : {0, 1, 2})
        all.push_back({.when = when, .bucket = bucket, .sharded = kind > 0, .frees = kind == 2});
  return all;
}

}  // namespace weft
