// SPDX-License-Identifier: Apache-2.0
#include "weft/optim/accumulate/exact_gradients.h"

#include "weft/collectives/sharding.h"
#include "weft/engine/kernels/backend.h"
#include "weft/engine/ops/exact.h"

namespace weft {

ExactGradients::ExactGradients(std::vector<Parameter*> parameters, Communicator& comm)
    : parameters_(std::move(parameters)), comm_(comm), begins_{0} {
  require(!parameters_.empty(), "ExactGradients: there are no parameters");
  for (const Parameter* p : parameters_) begins_.push_back(begins_.back() + exact_shape(p->value.shape()).size());
  const int64_t counts = static_cast<int64_t>(parameters_.size());
  sums_ = Tensor::zeros({begins_.back() + counts}, DType::f64, parameters_[0]->value.device());
  ByParameter<bool> known;
  for (const Parameter* p : parameters_) {
    require(!p->sharding || p->sharding->group.size() == 1, "ExactGradients: ", p->name,
            " is held by a group of ranks; its sums are of what all ranks have");
    known[p] = true;
  }
  block_.take_only([known = std::move(known)](const Parameter& parameter) { return known.contains(&parameter); });
  block_.after_backward([this] { take(); });
}

Tensor ExactGradients::parts(size_t parameter) {
  const Shape shape = exact_shape(parameters_[parameter]->value.shape());
  return sums_.slice(begins_[parameter], begins_[parameter + 1]).reshape(shape);
}
Tensor ExactGradients::count(size_t parameter) {
  const int64_t at = begins_.back() + static_cast<int64_t>(parameter);
  return sums_.slice(at, at + 1);
}

void ExactGradients::take() {
  const Tensor one = Tensor::full({1}, 1, DType::f64, sums_.device());
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (!block_.has(*parameters_[i])) continue;
    Tensor sum = parts(i), times = count(i);
    add_exactly(block_[*parameters_[i]], sum);
    backend(times.device()).accumulate(1, one, times);
  }
  block_.clear();
}

void ExactGradients::hand_over(Gradients& to, Site site) {
  comm_.all_reduce(sums_, sums_, ReduceOp::sum, site);
  if (comm_.rank().value == 0) {
    const std::vector<double> counts =
        sums_.slice(begins_.back(), sums_.size()).values();  // the only synchronization with a card
    for (size_t i = 0; i < parameters_.size(); ++i)
      if (counts[i] > 0) to.add(*parameters_[i], exact_total(parts(i), parameters_[i]->value.dtype()));
  }
  backend(sums_.device()).fill(0, sums_);
}

}  // namespace weft
