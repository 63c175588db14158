// SPDX-License-Identifier: Apache-2.0
#pragma once
// A network of linear layers, each a unit of sharded parameters.
#include "tests/support/on_ranks.h"
#include "weft/engine/kernels/scalar_ops.h"
#include "weft/engine/nn/linear.h"
#include "weft/engine/ops/reduce.h"
#include "weft/optim/parallel/sharded.h"

namespace weft {

struct Deep {
  Init init{.key = {7}};
  std::vector<std::unique_ptr<Linear>> layers;
  Deep(int count, int64_t width, Bias bias = Bias::yes, DType dtype = DType::f32) {
    init.dtype = dtype;
    for (int i = 0; i < count; ++i)
      layers.push_back(std::make_unique<Linear>("layer" + std::to_string(i), width, width, init,
                                                Activation{.op = Unary::Tanh}, bias));
  }
  std::vector<Parameter*> parameters() const {
    std::vector<Parameter*> all;
    for (const auto& layer : layers)
      for (Parameter* parameter : layer->parameters()) all.push_back(parameter);
    return all;
  }
  Var operator()(Var x, Sharded& sharded, const std::vector<Sharded::Unit>& units) {
    for (size_t i = 0; i < layers.size(); ++i)
      x = sharded.run(units[i], x, [layer = layers[i].get()](const Var& x) { return (*layer)(x); });
    return x;
  }
  std::vector<Sharded::Unit> units(const Sharded& sharded) const {
    std::vector<Sharded::Unit> units;
    for (const auto& layer : layers) units.push_back(sharded.unit(layer->parameters()));
    return units;
  }
};
inline Var loss_of(const Var& y) { return sum(square(y)) * 0.1; }
inline Tensor data(Communicator& comm, int64_t width, DType dtype = DType::f32) {
  return data_of(number(comm), {2, width}, 0, dtype);
}

}  // namespace weft
