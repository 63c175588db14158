// SPDX-License-Identifier: Apache-2.0
#pragma once
// A collective on the tape whose backward is one of mistakes.h.
#include "tools/web/mistakes.h"
#include "weft/collectives/linear_collective.h"

namespace weft::web {

// What this backward gives to an input of this shape.
inline Tensor applied(const Backward& backward, const Tensor& g, const Shape& input, Communicator& comm) {
  const bool rows = g.shape().rank() > 0;  // a scalar counts as a row
  const Tensor result = comm.run(backward.blocks, rows ? g : g.reshape({1}));
  const Var back = as_gradient(Var(result), rows ? input : Shape{1}) * backward.factor;
  return rows ? back.value() : back.value().reshape({});
}

template <LinearCollective C>
Var with_backward(const C& collective, Backward backward, const Var& x, Communicator& comm) {
  const auto pullback = [backward = std::move(backward), &comm, shape = x.shape()](const Var& g) {
    return Var(applied(backward, g.value(), shape, comm));
  };
  return collective_result(record(linear_op<C>, comm.run(collective, x.value()), from(x, pullback)), comm, C::result);
}

}  // namespace weft::web
