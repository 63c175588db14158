// SPDX-License-Identifier: Apache-2.0
#include "weft/collectives/nn/parallel_linear.h"

#include "weft/collectives/placement_conversions.h"
#include "weft/collectives/sharding.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/matmul.h"
#include "weft/engine/ops/shape_ops.h"

namespace weft {

// The number of features of each rank.
static Rows divided_features(int64_t count, const Communicator& group) {
  Rows features;
  for (int64_t rank = 0, ranks = group.size(); rank < ranks; ++rank)
    features.push_back(count * (rank + 1) / ranks - count * rank / ranks);
  return features;
}

FeatureRange own_features(int64_t count, const Communicator& group) {
  const Rows all = divided_features(count, group);
  const int64_t begin = rows_before(all, group.rank().value);
  return {begin, begin + all[static_cast<size_t>(group.rank().value)]};
}

// Draws the whole weight and copies this rank's slice, so that the whole can be freed.
static Tensor own_slice(const Init& init, const std::string& name, const Shape& shape, double gain, int axis,
                        const Communicator& group) {
  const FeatureRange mine = own_features(shape[axis], group);
  return slice(kaiming_uniform(init, name, shape, gain), axis, mine.begin, mine.end).value().clone();
}
static Tensor zeros(const Init& init, int64_t features, Bias bias) {
  return bias == Bias::yes ? init.full({features}, 0) : Tensor();
}

ColumnParallelLinear::ColumnParallelLinear(const std::string& name, int64_t in, int64_t out, const Init& init,
                                           Communicator& group, Activation activation, Bias with_bias)
    : weight(name + ".weight", own_slice(init, name + ".weight", {in, out}, gain(activation), 1, group)),
      bias(name + ".bias", zeros(init, weight.value.shape()[1], with_bias)),
      group_(group),
      activation_(activation) {
  weight.sharding = divided(group, 1, divided_features(out, group));
  bias.sharding = divided(group, 0, divided_features(out, group));
  register_parameter(weight);
  register_parameter(bias);
}

Var ColumnParallelLinear::apply(const Var& x, const Pass&) {
  expect_placement("ColumnParallelLinear '" + weight.name + "'", x, group_,
                   {Placement::invariant, Placement::replicated},
                   "all ranks of the group begin with the same features: say so of data with "
                   "with_placement(x, group, Placement::constant)");
  const Var each =
      placement_of(x, group_) == Placement::invariant ? vary(x, group_, Site::here("ColumnParallelLinear")) : x;
  return linear(each, bind_sharded(x, weight), bind_sharded(x, bias), activation_);
}

RowParallelLinear::RowParallelLinear(const std::string& name, int64_t in, int64_t out, const Init& init,
                                     Communicator& group, Bias with_bias)
    : weight(name + ".weight", own_slice(init, name + ".weight", {in, out}, gain({}), 0, group)),
      bias(name + ".bias", zeros(init, out, with_bias)),
      group_(group) {
  weight.sharding = divided(group, 0, divided_features(in, group));
  bias.sharding = invariant(group);
  register_parameter(weight);
  register_parameter(bias);
}

Var RowParallelLinear::part(const Var& x) const {
  expect_placement("RowParallelLinear '" + weight.name + "'", x, group_, {Placement::varying},
                   "each rank begins with features of its own, as a ColumnParallelLinear gives them");
  return as_partial(linear(x, bind_sharded(x, weight)), group_);
}

Var RowParallelLinear::apply(const Var& x, const Pass&) {
  const Var sum = all_reduce_equal(part(x), group_, Site::here("RowParallelLinear"));
  if (!bias.value.defined()) return sum;
  return add_along(sum, bind_sharded(x, bias), -1);
}

ParallelMlp::ParallelMlp(const std::string& name, int64_t in, int64_t hidden, int64_t out, const Init& init,
                         Communicator& group, Activation between)
    : first(name + ".0", in, hidden, init, group, between), second(name + ".1", hidden, out, init, group) {
  register_module(first);
  register_module(second);
}

}  // namespace weft
