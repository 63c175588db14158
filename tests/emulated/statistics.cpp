// SPDX-License-Identifier: Apache-2.0
#include "tests/emulated/statistics.h"

#include "weft/collectives/placement_conversions.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/reduce.h"
#include "weft/engine/ops/shape_ops.h"
#include "weft/losses/common/moments.h"
#include "weft/losses/quantizers/soft_corners.h"

namespace weft::emulated {

Var lookup_free_entropy(const Var& tokens, double inverse_temperature, double diversity, Averaging averaging,
                        Communicator& comm) {
  const double count = static_cast<double>(tokens.shape()[0]), ranks = comm.size();
  const Var logits = tokens * (4 * inverse_temperature);
  const Var own = assigned_to_corners(logits, 1, tokens.shape()[0]) / count;
  const Var average = (averaging == Averaging::raw ? raw_all_reduce(own, comm) : own) / ranks;
  return entropy_of_assignments(logits) / count - diversity * entropy(average);
}

Var root_mean_squared_error(const Var& predictions, const Var& targets, Communicator& comm) {
  const Var own = stack({sum(square(predictions - targets)), row_count(predictions)}, 0);
  const Rows one_each(static_cast<size_t>(comm.size()), 1);
  const Var states = sum(gather(reshape(own, {1, 2}), one_each, Adjoint::own_slot, comm), 0);
  return as_varying(sqrt(sum(slice(states, 0, 0, 1)) / sum(slice(states, 0, 1, 2))), comm);
}

}  // namespace weft::emulated
