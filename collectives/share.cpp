#include "collectives/share.h"

#include <algorithm>

#include "engine/ops/elementwise.h"

namespace weft {

Var share(const Var& sum_of_losses, int64_t total) {
  require(sum_of_losses.size() == 1, "share: a sum of losses is a scalar, not ", sum_of_losses.shape());
  require(total >= 0, "share: of ", total, " samples");
  return sum_of_losses / static_cast<double>(std::max<int64_t>(total, 1));
}

double sum_over_ranks(double share, Communicator& comm, Site site) {
  return comm.all_reduce(Tensor::full({}, share, DType::f64), ReduceOp::sum, site).item();
}

}  // namespace weft
