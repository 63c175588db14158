// SPDX-License-Identifier: Apache-2.0
#pragma once
// A collective with the rows of all ranks' tensors, and how it runs on the tape with a backward that need not be its
// adjoint.
#include <variant>

#include "tools/web/mistakes.h"
#include "weft/collectives/linear_collective.h"
#include "weft/engine/ops/shape_ops.h"

namespace weft::web {

using AnyVerb = std::variant<AllGather, ReduceScatter, AllReduce, Broadcast, Reduce, Gather, Scatter, AllToAll, Permute,
                             Scan, Exscan, Sums>;

inline constexpr int most_ranks = 5;

struct Task {
  AnyVerb verb;
  Rows inputs;  // how many rows each rank's tensor has
  Blocks blocks() const {
    return std::visit([&](const auto& verb) { return blocks_of(verb, inputs); }, verb);
  }
};

// What a rank's input of this shape gets back.
inline Tensor applied(const Backward& backward, const Tensor& g, const Shape& input, Communicator& comm) {
  const bool rows = g.shape().rank() > 0;  // a scalar counts as a row
  const Tensor result = comm.run(backward.blocks, rows ? g : g.reshape({1}));
  const Var back = as_gradient(Var(result), rows ? input : Shape{1}) * backward.factor;
  return rows ? back.value() : back.value().reshape({});
}

template <LinearCollective C>
Var with_backward(const C& collective, const Backward& backward, const Var& x, Communicator& comm) {
  const auto pullback = [backward, &comm, shape = x.shape()](const Var& g) {
    return Var(applied(backward, g.value(), shape, comm));
  };
  return collective_result(record(linear_op<C>, comm.run(collective, x.value()), from(x, pullback)), comm, C::result);
}

}  // namespace weft::web
