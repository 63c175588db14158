// SPDX-License-Identifier: Apache-2.0
#pragma once
// Linear layers divided among the ranks of a group by features (tensor parallelism), evenly or not. A rank's parameters
// are its slice of those that one process would draw under the same name, so the network is the same on any number of
// ranks. Between a pair of layers every rank has features of its own:
//
//   x  Invariant  -vary->  Replicated  -ColumnParallelLinear, activation->  Varying
//                 -RowParallelLinear->  Partial  -all_reduce_equal->  Invariant  + bias
//
// That is one collective forward and, for vary, one backward. Gradients of these parameters are not summed over this
// group: a rank has the whole gradient of its slice, and all ranks have the same gradient of the last bias. Over ranks
// that divide the samples, gradients are summed as always. The parameters have a sharding (sharding.h) that training
// follows.
#include "weft/collectives/communicator.h"
#include "weft/engine/kernels/scalar_ops.h"
#include "weft/engine/nn/linear.h"

namespace weft {

struct FeatureRange {
  int64_t begin, end;
};
FeatureRange own_features(int64_t count, const Communicator& group);  // sizes differ by one at most

// activation(x w + bias) with this rank's columns of w: its own output features. x is whole on every rank: Invariant,
// Replicated if its gradient is summed elsewhere (as all_gather does), or Constant if it has none.
class ColumnParallelLinear final : public Layer {
 public:
  ColumnParallelLinear(const std::string& name, int64_t in, int64_t out, const Init& init, Communicator& group,
                       Activation activation = {}, Bias bias = Bias::yes);

  Parameter weight, bias;

 private:
  Var apply(const Var& x, const Pass& pass) override;
  Communicator& group_;
  Activation activation_;
};

// x w + bias, where x has this rank's input features and w its rows. Every rank gets the whole, Invariant.
class RowParallelLinear final : public Layer {
 public:
  RowParallelLinear(const std::string& name, int64_t in, int64_t out, const Init& init, Communicator& group,
                    Bias bias = Bias::yes);

  // This rank's term of x w, which is Partial, for a caller that sums the terms in another way.
  Var part(const Var& x) const;

  Parameter weight, bias;

 private:
  Var apply(const Var& x, const Pass& pass) override;
  Communicator& group_;
};

// Both layers with an activation between: Mlp(name, {in, hidden, out}, init, between), divided among ranks.
class ParallelMlp final : public Layer {
 public:
  ParallelMlp(const std::string& name, int64_t in, int64_t hidden, int64_t out, const Init& init, Communicator& group,
              Activation between = {.op = Unary::Relu});

  ColumnParallelLinear first;
  RowParallelLinear second;

 private:
  Var apply(const Var& x, const Pass& pass) override { return second(first(x, pass), pass); }
};

}  // namespace weft
