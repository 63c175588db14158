#pragma once
#include "collectives/communicator.h"
#include "engine/nn/norms.h"

namespace weft {

// BatchNorm of a batch whose rows are divided among the ranks of a group, unevenly if need be; a rank may have none. In
// training every rank normalizes by the statistics of the whole batch, at the price of one all_gather forward and one
// reduce_scatter backward, and the running averages stay the same bits on every rank.
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
