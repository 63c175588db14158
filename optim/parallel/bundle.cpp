// SPDX-License-Identifier: Apache-2.0
#include "weft/optim/parallel/bundle.h"

#include <algorithm>

#include "weft/collectives/checks/agreement.h"
#include "weft/collectives/sharding.h"

namespace weft {
namespace {

class Planner {
 public:
  Planner(std::string who, Communicator& comm) : who_(std::move(who)), comm_(std::shared_ptr<void>(), &comm) {}

  std::vector<BundlePlan> plan(const std::vector<ParameterGroup>& groups) {
    for (const ParameterGroup& group : groups) {
      for (BundlePlan& bundle : plans_) bundle.groups.push_back(without_parameters(group));
      for (Parameter* parameter : group.parameters)
        bundle_for(*parameter, group).groups.back().parameters.push_back(parameter);
      for (BundlePlan& bundle : plans_)
        if (bundle.groups.back().parameters.empty()) bundle.groups.pop_back();
    }
    require(!plans_.empty(), who_, ": there are no parameters");
    expect_equal_values(groups);
    return std::move(plans_);
  }

 private:
  struct Axis {
    Communicator* group;
    std::shared_ptr<Communicator> across;
  };

  static ParameterGroup without_parameters(ParameterGroup group) {
    group.parameters.clear();
    return group;
  }

  BundlePlan& bundle_for(const Parameter& parameter, const ParameterGroup& group) {
    const std::shared_ptr<Communicator> comm = summed_over(parameter);
    const auto fits = [&](const BundlePlan& bundle) {
      const Tensor& first = parameters_of(bundle.groups)[0]->value;
      return bundle.comm == comm && first.dtype() == parameter.value.dtype() &&
             first.device() == parameter.value.device();
    };
    const auto found = std::find_if(plans_.begin(), plans_.end(), fits);
    if (found != plans_.end()) return *found;
    plans_.push_back({{without_parameters(group)}, comm});
    return plans_.back();
  }

  std::shared_ptr<Communicator> summed_over(const Parameter& parameter) {
    if (!parameter.sharding || parameter.sharding->group.size() == 1) return comm_;
    Communicator& group = parameter.sharding->group;
    for (const auto& [known, across] : axes_)
      if (known == &group) return across;
    axes_.push_back({&group, is_within(group, *comm_) ? std::shared_ptr(comm_->split(group.rank().value)) : comm_});
    return axes_.back().across;
  }

  void expect_equal_values(const std::vector<ParameterGroup>& groups) {
    const auto compare = [&](const std::vector<Parameter*>& parameters, Communicator& comm) {
      std::vector<NamedTensor> values;
      for (const Parameter* parameter : parameters) values.push_back({parameter->name, parameter->value});
      expect_agreement(who_, values, comm);
    };
    for (const BundlePlan& bundle : plans_) compare(parameters_of(bundle.groups), *bundle.comm);
    for (const Axis& axis : axes_) {
      std::vector<Parameter*> undivided = parameters_of(groups);
      std::erase_if(undivided, [&](const Parameter* p) { return is_divided(*p) && &p->sharding->group == axis.group; });
      compare(undivided, *axis.group);
    }
  }

  const std::string who_;
  const std::shared_ptr<Communicator> comm_;
  std::vector<Axis> axes_;
  std::vector<BundlePlan> plans_;
};

}  // namespace

std::vector<BundlePlan> plan_bundles(const std::string& who, const std::vector<ParameterGroup>& groups,
                                     Communicator& comm) {
  return Planner(who, comm).plan(groups);
}

}  // namespace weft
