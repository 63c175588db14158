// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "weft/collectives/communicator.h"
#include "weft/engine/nn/norm_layers.h"

namespace weft {

// BatchNorm of a batch whose rows are divided among the ranks of a group, evenly or not; a rank may have none. In
// training every rank normalizes by the statistics of the whole batch. This costs one all_gather forward and one
// reduce_scatter backward. The running averages have the same bits on every rank.
class DistributedBatchNorm final : public BatchNorm {
 public:
  DistributedBatchNorm(const std::string& name, int64_t width, const Init& init, Communicator& group,
                       double momentum = 0.1, double epsilon = 1e-5)
      : BatchNorm(name, width, init, momentum, epsilon), group_(group) {}

  Statistics statistics(const Var& x) const override;

 private:
  Communicator& group_;
};

}  // namespace weft
