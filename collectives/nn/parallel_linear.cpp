#include "collectives/nn/parallel_linear.h"

#include "collectives/group_placement.h"
#include "collectives/spreads.h"
#include "engine/ops/elementwise.h"
#include "engine/ops/matmul.h"
#include "engine/ops/shape_ops.h"

namespace weft {

// Of each rank.
static Rows features_of(int64_t count, const Communicator& group) {
  Rows features;
  for (int64_t rank = 0, ranks = group.size(); rank < ranks; ++rank)
    features.push_back(count * (rank + 1) / ranks - count * rank / ranks);
  return features;
}

FeatureRange own_features(int64_t count, const Communicator& group) {
  const Rows all = features_of(count, group);
  const int64_t begin = rows_before(all, group.rank().value);
  return {begin, begin + all[static_cast<size_t>(group.rank().value)]};
}

// The whole weight is drawn and then cut. The copy lets go of the whole.
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
  weight.placement = divided(group, 1, features_of(out, group));
  bias.placement = divided(group, 0, features_of(out, group));
  has(weight);
  has(bias);
}

Var ColumnParallelLinear::apply(const Var& x, const Pass&) {
  expect_spread("ColumnParallelLinear '" + weight.name + "'", x, group_, {Spread::invariant, Spread::replicated},
                "all ranks of the group begin with the same features: say so of data with "
                "spread_as(x, group, Spread::same)");
  const Var each = spread_of(x, group_) == Spread::invariant ? vary(x, group_, Site::here("ColumnParallelLinear")) : x;
  return linear(each, use_placed(x, weight), use_placed(x, bias), activation_);
}

RowParallelLinear::RowParallelLinear(const std::string& name, int64_t in, int64_t out, const Init& init,
                                     Communicator& group, Bias with_bias)
    : weight(name + ".weight", own_slice(init, name + ".weight", {in, out}, gain({}), 0, group)),
      bias(name + ".bias", zeros(init, out, with_bias)),
      group_(group) {
  weight.placement = divided(group, 0, features_of(in, group));
  bias.placement = invariant(group);
  has(weight);
  has(bias);
}

Var RowParallelLinear::part(const Var& x) const {
  expect_spread("RowParallelLinear '" + weight.name + "'", x, group_, {Spread::varying},
                "each rank begins with features of its own, as a ColumnParallelLinear gives them");
  return as_partial(linear(x, use_placed(x, weight)), group_);
}

Var RowParallelLinear::apply(const Var& x, const Pass&) {
  const Var sum = all_reduce_equal(part(x), group_, Site::here("RowParallelLinear"));
  if (!bias.value.defined()) return sum;
  return add_along(sum, use_placed(x, bias), -1);
}

ParallelMlp::ParallelMlp(const std::string& name, int64_t in, int64_t hidden, int64_t out, const Init& init,
                         Communicator& group, Activation between)
    : first(name + ".0", in, hidden, init, group, between), second(name + ".1", hidden, out, init, group) {
  has(first);
  has(second);
}

}  // namespace weft
