// SPDX-License-Identifier: Apache-2.0
#pragma once
// A bundle is the parameters that have one dtype, are on one device and have their gradients summed over the same
// ranks. They share one flat memory and one optimizer.
#include "weft/collectives/communicator.h"
#include "weft/optim/optimizer.h"

namespace weft {

// The operations of a trainer on one bundle.
class Bundle {
 public:
  virtual ~Bundle() = default;
  virtual Gradients& gradients() = 0;  // the destination of backward
  virtual Optimizer& optimizer() = 0;
  virtual void expect_last_pass() {}
  virtual void reduce() = 0;                             // sums gradients over ranks; every rank must call it
  virtual const std::vector<bool>& present() const = 0;  // by place: whether any rank has a gradient
  virtual Tensor sums() = 0;                             // of the range that this rank owns
  virtual Tensor sums_to_change() { return sums(); }     // the same in memory that no other rank reads
  virtual void publish_updates() {}                      // after a step of the optimizer; every rank must call it
  virtual void clear() = 0;                              // begins the next step; every rank must call it
};

struct BundlePlan {
  std::vector<ParameterGroup> groups;
  std::shared_ptr<Communicator> comm;  // the ranks over which gradients are summed
};
// The bundles of a training on the ranks of `comm`. The gradients of a parameter that a group of ranks divides
// (collectives/sharding.h) are summed over the ranks with the same slice. Error unless parameters are equal on all
// ranks that should have the same values.
std::vector<BundlePlan> plan_bundles(const std::string& who, const std::vector<ParameterGroup>& groups,
                                     Communicator& comm);

}  // namespace weft
