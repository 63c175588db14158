// SPDX-License-Identifier: Apache-2.0
#include "weft/losses/assignment/msn.h"

#include "weft/collectives/collectives.h"
#include "weft/collectives/placement_conversions.h"
#include "weft/collectives/share.h"
#include "weft/engine/maths/maths.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/matmul.h"
#include "weft/engine/ops/normalize.h"
#include "weft/engine/ops/reduce.h"
#include "weft/losses/assignment/sinkhorn.h"
#include "weft/losses/common/division.h"
#include "weft/losses/common/loss_call.h"
#include "weft/losses/common/precision.h"

namespace weft {
namespace {

void check(const Vars& anchors, const Var& targets, const Var& prototypes) {
  require(!anchors.empty(), "there are no anchors");
  require(prototypes.shape().rank() == 2 && prototypes.shape()[0] > 0 && targets.shape().rank() == 2 &&
              targets.shape()[1] == prototypes.shape()[1],
          "targets ", targets.shape(), " cannot be compared with prototypes ", prototypes.shape());
  for (const Var& view : anchors)
    require(view.shape() == targets.shape(), "anchors ", view.shape(), " for targets ", targets.shape());
}

// The cosines with prototypes of unit length, divided by the temperature.
Var cosines(const Var& features, const Var& prototypes, double temperature) {
  return matmul(l2_normalize(precise(features)), prototypes, Transpose::no, Transpose::yes) / temperature;
}

// Computed from the mean prediction over all ranks, which every rank has.
Var regularization(const Var& mean, const std::optional<double>& power_law) {
  if (!power_law) return sum(mean * log(mean)) + maths::log(static_cast<double>(mean.size()));
  const Var numbers = Tensor::arange(mean.size(), mean.dtype(), mean.device());
  const Var prior = replicated_constant(softmax(log(numbers + 1) * -*power_law).value());
  return sum(prior * (log(prior) - log(mean)));
}

}  // namespace

Var msn(const Vars& anchors, const Var& targets, const Var& prototypes, const MsnOptions& options, Communicator& comm,
        Site caller) try {
  const Site site = LossCall("msn", caller)
                        .positive("temperature", options.temperature)
                        .positive("target temperature", options.target_temperature)
                        .count("iterations", options.iterations)
                        .number("regularization weight", options.regularization_weight)
                        .number("power law", options.power_law.value_or(0));
  check(anchors, targets, prototypes);
  const Division division(targets.shape()[0], comm, site);
  const Var unit = l2_normalize(precise(prototypes));
  const double target_temperature = options.temperature * options.target_temperature;
  const Tensor logits = log_softmax(cosines(detach(targets).value(), detach(unit).value(), target_temperature)).value();
  const Tensor codes = sinkhorn({logits}, options.iterations, comm, site)[0];

  Var agreement, predictions;
  for (const Var& view : anchors) {
    const Var logarithms = log_softmax(cosines(view, unit, options.temperature));
    const Var agreed = sum(constant_like(codes, logarithms) * logarithms), predicted = sum(exp(logarithms), 0);
    agreement = agreement.defined() ? agreement + agreed : agreed;
    predictions = predictions.defined() ? predictions + predicted : predicted;
  }
  const int64_t count = division.total * static_cast<int64_t>(anchors.size());
  const Var loss = share(-agreement, count, comm);
  if (options.regularization_weight == 0 || count == 0) return loss;
  const Var mean = all_reduce(predictions, comm, ReduceOp::sum, site) / static_cast<double>(count);
  return loss + keep_on(regularization(mean, options.power_law) * options.regularization_weight, {0}, comm);
} catch (Error& error) {
  fail_in("msn", caller, error);
}

}  // namespace weft
