// SPDX-License-Identifier: Apache-2.0
#include "apps/shared/run/graph_steps.h"

#include "weft/engine/kernels/backend.h"

namespace weft {

GraphSteps::GraphSteps(const Launch& rank, Training& training)
    : device_(rank.device), tapes_(rank.tapes), training_(training) {
  if (!rank.line.options().graph) return;
  if (rank.comm.size() > 1)
    throw WrongOption("--graph: a graph of one card only, and this run has " + text(rank.comm.size()) +
                      " ranks; leave it out, or take --ranks 1");
  graph_ = backend(device_).make_graph();
}

std::vector<Tensor> GraphSteps::run(const std::vector<Tensor*>& inputs, double rate, bool alike, const Step& step) {
  if (!graph_ || !alike || (tapes_ && tapes_->on)) return step();
  keep(inputs);
  constexpr int warm = 2, captured = warm + 2;
  if (begun_ < captured) results_.clear(), ++begun_;  // a capture must not free them
  if (begun_ <= warm) return step();
  try {
    graph_->run([&] { results_ = step(); }, [&] { training_.renew(rate); });
  } catch (const NotRepeatable& error) {
    throw WrongOption("--graph: " + std::string(error.what()) + "; leave it out");
  }
  return results_;
}

void GraphSteps::keep(const std::vector<Tensor*>& inputs) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (i == inputs_.size()) inputs_.emplace_back(inputs[i]->shape(), inputs[i]->dtype(), device_);
    inputs_[i].copy_from(*inputs[i]);
    *inputs[i] = inputs_[i];
  }
}

}  // namespace weft
