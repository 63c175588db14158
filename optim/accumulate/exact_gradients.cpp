// SPDX-License-Identifier: Apache-2.0
#include "weft/optim/accumulate/exact_gradients.h"

#include <map>
#include <utility>

#include "weft/collectives/sharding.h"
#include "weft/engine/kernels/backend.h"
#include "weft/engine/ops/exact.h"

namespace weft {

ExactGradients::ExactGradients(std::vector<Parameter*> parameters, Communicator& comm)
    : parameters_(std::move(parameters)), comm_(comm), begins_{0} {
  require(!parameters_.empty(), "ExactGradients: there are no parameters");
  for (const Parameter* p : parameters_) begins_.push_back(begins_.back() + p->value.size());
  sums_ = Tensor::zeros(exact_shape({begins_.back()}), DType::f64, parameters_[0]->value.device());
  present_.resize(parameters_.size());
  ByParameter<bool> known;
  for (const Parameter* p : parameters_) {
    require(!p->sharding || p->sharding->group.size() == 1, "ExactGradients: ", p->name,
            " is held by a group of ranks; its sums are of what all ranks have");
    known[p] = true;
  }
  block_.take_only([known = std::move(known)](const Parameter& parameter) { return known.contains(&parameter); });
  block_.after_backward([this] { take(); });
}

void ExactGradients::take() {
  std::vector<ExactRun> runs;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (!block_.has(*parameters_[i])) continue;
    runs.push_back({block_[*parameters_[i]], begins_[i]});
    present_[i] = 1;
  }
  backend(sums_.device()).add_exact_parts(runs, sums_);
  block_.clear();
}

void ExactGradients::hand_over(Gradients& to, Site site) {
  comm_.all_reduce(sums_, sums_, ReduceOp::sum, site);
  // On the host, so that no rank waits for a card.
  const Tensor mine =
      Tensor::from({std::ssize(present_)}, std::exchange(present_, std::vector<double>(present_.size())), DType::u8);
  const Tensor present = comm_.all_reduce(mine, ReduceOp::maximum, site);
  if (comm_.rank().value == 0) {
    std::map<DType, Tensor> totals;
    for (size_t i = 0; i < parameters_.size(); ++i) {
      if (present.data<uint8_t>()[i] == 0) continue;
      const Tensor& value = parameters_[i]->value;
      Tensor& all = totals[value.dtype()];
      if (!all.defined()) all = exact_total(sums_, value.dtype());
      to.add(*parameters_[i], all.slice(begins_[i], begins_[i + 1]).reshape(value.shape()));
    }
  }
  backend(sums_.device()).fill(0, sums_);
}

}  // namespace weft
