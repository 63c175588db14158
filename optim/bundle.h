#pragma once
// Groups of parameters, sorted into bundles: what has one dtype, is on one device and has its gradients summed over the
// same ranks lies in one flat memory and has one optimizer.
#include "collectives/communicator.h"
#include "optim/optimizer.h"

namespace weft {

// What a training does with one bundle.
class Bundle {
 public:
  virtual ~Bundle() = default;
  virtual Gradients& gradients() = 0;  // where backward puts them
  virtual Optimizer& optimizer() = 0;
  virtual void expect_last_pass() {}
  virtual void reduce() = 0;                             // on every rank: sums them over the ranks
  virtual const std::vector<bool>& present() const = 0;  // by place: on any rank
  virtual Tensor sums() = 0;                             // of the range that this rank owns
  virtual Tensor sums_to_change() { return sums(); }     // where no other rank sees it
  virtual void spread_updates() {}                       // on every rank, after a step of the optimizer
  virtual void clear() = 0;                              // on every rank: the next step begins
};

struct BundlePlan {
  std::vector<ParameterGroup> groups;
  std::shared_ptr<Communicator> comm;  // that gradients are summed over
};
// Of a training over these ranks. What a group of them holds between them (group_placement.h) is summed over the ranks
// that have the same of it. Error unless parameters are equal on all ranks where they should be.
std::vector<BundlePlan> plan_bundles(const std::string& who, const std::vector<ParameterGroup>& groups,
                                     Communicator& comm);

}  // namespace weft
