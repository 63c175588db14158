// SPDX-License-Identifier: Apache-2.0
#include "weft/losses/quantizers/grouped_residual.h"

#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/shape_ops.h"

namespace weft {

GroupedResidual::GroupedResidual(Groups groups) : Quantizer("GroupedResidual"), groups_(std::move(groups)) {
  require(!groups_.empty(), "GroupedResidual: no groups");
  for (const auto& group : groups_) register_module(*group);
}

Quantized GroupedResidual::apply(const Var& x, const Pass& pass, Communicator& comm, const Var& mask, Site caller) {
  const auto count = static_cast<int64_t>(groups_.size());
  require(x.shape().rank() > 1 && x.shape()[-1] % count == 0, x.shape(), " cannot be divided into ", count,
          " equal groups of features");
  const int64_t width = x.shape()[-1] / count, used = groups_[0]->used(pass);
  Var loss;
  Vars values, indices;
  for (int64_t g = 0; g < count; ++g) {
    Pass own = pass;
    own.key = pass.key.fork(static_cast<uint64_t>(g));
    const Var features = slice(x, -1, g * width, (g + 1) * width);
    const Quantized q = groups_[static_cast<size_t>(g)]->quantize(features, used, own, comm, mask, caller);
    values.push_back(q.values);
    indices.push_back(q.indices);
    loss = g == 0 ? q.loss : loss + q.loss;
  }
  return {concat(values, -1), stack(indices, -2), loss};
}

Var GroupedResidual::decoded(const Var& indices) {
  const Shape& shape = indices.shape();
  const auto count = static_cast<int64_t>(groups_.size());
  require(shape.rank() > 1 && shape[-2] == count, "indices ", shape, " for ", count, " groups");
  Vars values;
  for (int64_t g = 0; g < count; ++g)
    values.push_back(
        decoded_part(*groups_[static_cast<size_t>(g)], reshape(slice(indices, -2, g, g + 1), shape.without(-2))));
  return concat(values, -1);
}

void GroupedResidual::count(Communicator& comm, Site caller) {
  for (const auto& group : groups_) add_up_part(*group, comm, caller);
}

void GroupedResidual::learn(Communicator& comm, const Random& key, Site caller) {
  for (size_t g = 0; g < groups_.size(); ++g) update_part(*groups_[g], comm, key.fork(g), caller);
}

}  // namespace weft
