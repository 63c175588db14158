// SPDX-License-Identifier: Apache-2.0
#include "weft/losses/assignment/sinkhorn.h"

#include "weft/collectives/collectives.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/normalize.h"
#include "weft/engine/ops/reduce.h"
#include "weft/engine/ops/shape_ops.h"

namespace weft {

std::vector<Tensor> sinkhorn(std::vector<Tensor> logits, int iterations, Communicator& comm, Site site) {
  require(iterations >= 0, "sinkhorn: ", iterations, " iterations");
  for (const Tensor& x : logits)
    require(x.shape().rank() == 2 && x.shape()[1] == logits[0].shape()[1] && x.shape()[1] > 0,
            "sinkhorn: logits are (samples, prototypes), of as many prototypes everywhere, not ", x.shape());
  for (int i = 0; i < iterations; ++i) {
    Vars columns;
    for (Tensor& x : logits) {
      if (i > 0) x = log_softmax(x).value();
      columns.push_back(log_sum_exp(x, 0));
    }
    const Tensor sums = all_reduce_log_sum_exp(stack(columns, 0), comm, site).value();
    for (int64_t m = 0; m < sums.shape()[0]; ++m) {
      Tensor& x = logits[static_cast<size_t>(m)];
      x = sub_along(x, sums.slice(m, m + 1).reshape({sums.shape()[1]}), -1).value();
    }
  }
  for (Tensor& x : logits) x = softmax(x).value();
  return logits;
}

}  // namespace weft
