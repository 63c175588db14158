// Reductions over ranks that are made of the primitive ones and of local ops; their gradients follow.
#include <cmath>

#include "collectives/ops.h"
#include "engine/ops/elementwise.h"
#include "engine/ops/reduce.h"
#include "engine/ops/shape_ops.h"

namespace weft {

static Var spread_over(const Var& scalar, const Shape& shape) {
  return reshape(repeat(reshape(scalar, {}), 0, shape.size()), shape);
}

Var weighted_mean(const Var& x, const Var& weight, Communicator& comm, Site site) {
  require(weight.size() == 1 && weight.dtype() == x.dtype(), "weighted_mean: one ", x.dtype(),
          " weight per rank is needed, not ", weight.dtype(), " ", weight.shape());
  const Var total = all_reduce(x * spread_over(weight, x.shape()), comm, ReduceOp::sum, site);
  return total / spread_over(all_reduce(weight, comm, ReduceOp::sum, site), x.shape());
}

Var all_reduce_norm(const Var& x, Communicator& comm, Site site) {
  const Var all = all_gather(reshape(x, x.shape().with_inserted(0, 1)), comm, site);
  return norm(all, 0);
}

// Shifted by the largest, which is a constant here: its derivative cancels.
Var all_reduce_log_sum_exp(const Var& x, Communicator& comm, Site site) {
  const Tensor extreme = comm.all_reduce(detach(x).value(), ReduceOp::maximum, site),
               zeros = Tensor::zeros(x.shape(), x.dtype(), x.device());
  const Tensor nothing = Tensor::full(x.shape(), -INFINITY, x.dtype(), x.device());
  // A sum of nothing is shifted by nothing.
  const Tensor largest = where(equal(extreme, nothing), zeros, extreme).value();
  const Var sums = all_reduce(exp(x - derived(largest, x)), comm, ReduceOp::sum, site);
  return log(sums) + derived(largest, sums);
}

}  // namespace weft
