// SPDX-License-Identifier: Apache-2.0
// Reductions over ranks that are composed of other collectives and local ops, so they need no pullbacks.
#include <cmath>
#include <limits>

#include "weft/collectives/collectives.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/reduce.h"
#include "weft/engine/ops/shape_ops.h"

namespace weft {

static Var expanded(const Var& scalar, const Shape& shape) {
  return reshape(repeat(reshape(scalar, {}), 0, shape.size()), shape);
}

Var weighted_mean(const Var& x, const Var& weight, Communicator& comm, Site site) {
  require(weight.size() == 1 && weight.dtype() == x.dtype(), "weighted_mean: one ", x.dtype(),
          " weight per rank is needed, not ", weight.dtype(), " ", weight.shape());
  const Var total = all_reduce(x * expanded(weight, x.shape()), comm, ReduceOp::sum, site);
  return total / expanded(all_reduce(weight, comm, ReduceOp::sum, site), x.shape());
}

Var all_reduce_norm(const Var& x, Communicator& comm, Site site) {
  const Var all = all_gather(reshape(x, x.shape().with_inserted(0, 1)), comm, site);
  return norm(all, 0);
}

static double lowest(DType type) {
  if (type == DType::f64) return std::numeric_limits<double>::lowest();
  return type == DType::f32 ? double{std::numeric_limits<float>::lowest()} : -0x1.fep127;
}

// The values are shifted by their maximum. It is a constant here, because its derivative cancels.
Var all_reduce_log_sum_exp(const Var& x, Communicator& comm, Site site) {
  const Tensor extreme = comm.run_on_tape(AllReduce{ReduceOp::maximum}, detach(x).value(), site);
  // Where all values are -infinity a shift by it would give NaN.
  const Tensor largest = clamp(extreme, lowest(x.dtype()), INFINITY).value();
  const Var sums = all_reduce(exp(x - constant_like(largest, x)), comm, ReduceOp::sum, site);
  return log(sums) + constant_like(largest, sums);
}

}  // namespace weft
