// SPDX-License-Identifier: Apache-2.0
#include "weft/optim/accumulate/observe.h"

#include "weft/engine/tape/record.h"

namespace weft {

const Op observe_op{"observe", {}, Algebra::linear, Replay::always};

Var observe(const Var& x, std::function<void(const Tensor& cotangent)> callback) {
  return record(observe_op, x.value(), from(x, [callback = std::move(callback)](const Var& g) {
                  callback(g.value());
                  return g;
                }));
}

}  // namespace weft
