// SPDX-License-Identifier: Apache-2.0
#include "weft/losses/metrics/regression_metrics.h"

#include "weft/collectives/placement_conversions.h"
#include "weft/collectives/share.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/normalize.h"
#include "weft/engine/ops/reduce.h"
#include "weft/engine/ops/shape_ops.h"
#include "weft/losses/common/loss_call.h"
#include "weft/losses/common/moments.h"
#include "weft/losses/common/precision.h"
#include "weft/losses/metrics/states.h"

namespace weft {
namespace {

void check(const Var& predictions, const Var& targets, bool of_rows) {
  const int rank = predictions.shape().rank();
  require(predictions.shape() == targets.shape(), "predictions ", predictions.shape(), " for targets ",
          targets.shape());
  require(rank == 2 || (rank == 1 && !of_rows), of_rows ? "rows" : "one value or row for each sample",
          " are needed, not ", predictions.shape());
}

// A matrix with one column per output; a vector of samples becomes one column.
Var columns(const Var& x) { return reshape(precise(x), {x.shape()[0], x.shape().product(1, x.shape().rank())}); }
Var squared_error(const Var& predictions, const Var& targets) {
  return square(precise(predictions) - precise(targets));
}

Tensor zeros_like(const Var& x) { return Tensor::zeros(x.shape(), x.dtype(), x.device()); }
Var full_like(const Var& x, double value) {
  return constant_like(Tensor::full(x.shape(), value, x.dtype(), x.device()), x);
}

// The square root, with a gradient of zero at zero.
Var root(const Var& x) {
  const Var none = constant_like(equal(x.value(), zeros_like(x)), x);
  return where(none, full_like(x, 0), sqrt(where(none, full_like(x, 1), x)));
}

// Whether all values were equal. The bound is much larger than the variance that rounding of the mean leaves, and
// smaller than that of values that differ, unless only one in 64 differs by a unit in its last place.
Tensor vanishes(const Var& variance, const Var& mean) {
  const double unit = variance.dtype() == DType::f64 ? 0x1p-52 : 0x1p-23;
  return less_equal(variance.value(), square(Var(mean.value()) * (unit / 8)).value());
}

// 1 - errors / variance of the targets. If all targets are equal: 1 without errors, else 0.
Var explained(const Var& errors, const Tensor& no_errors, const Var& variance, const Var& mean) {
  const Var all_equal = constant_like(vanishes(variance, mean), variance);
  const Var fixed = constant_like(no_errors.to(errors.dtype()), errors);
  return where(all_equal, fixed, 1 - errors / where(all_equal, full_like(variance, 1), variance));
}

// Makes the metric, which every rank has computed equally, Replicated, so that ranks may use it differently.
Var of_outputs(const Var& metric, const Var& predictions, Communicator& comm, Site site) {
  return reshape(vary(metric, comm, site), predictions.shape().without(0));
}

// Moments of the targets and of the errors.
Moments moments_of_errors(const Var& predictions, const Var& targets, Communicator& comm, const Site& site) {
  check(predictions, targets, false);
  const Var truth = columns(targets);
  return moments({truth, truth - columns(predictions)}, {}, comm, Columns::counterparts, site);
}

}  // namespace

Var mean_squared_error(const Var& predictions, const Var& targets, Communicator& comm, Site caller) try {
  const Site site = LossCall("mean_squared_error", caller);
  check(predictions, targets, false);
  return mean_over_ranks("squared errors", squared_error(predictions, targets), comm, site);
} catch (Error& error) {
  fail_in("mean_squared_error", caller, error);
}

Var root_mean_squared_error(const Var& predictions, const Var& targets, Communicator& comm, Site caller) try {
  const Site site = LossCall("root_mean_squared_error", caller);
  check(predictions, targets, false);
  return root(mean_over_ranks("squared errors", squared_error(predictions, targets), comm, site));
} catch (Error& error) {
  fail_in("root_mean_squared_error", caller, error);
}

Var cosine_similarity(const Var& predictions, const Var& targets, Over reduction, Communicator& comm, Site caller) try {
  const Site site = LossCall("cosine_similarity", caller).choice(reduction == Over::mean ? "mean" : "sum");
  check(predictions, targets, true);
  const Var cosines = sum(l2_normalize(precise(predictions)) * l2_normalize(precise(targets)), 1);
  if (reduction == Over::mean) return mean_over_ranks("cosines", cosines, comm, site);
  States states(comm);
  const auto result = states.sum("cosines", sum(cosines));
  states.exchange(site);
  return result.value();
} catch (Error& error) {
  fail_in("cosine_similarity", caller, error);
}

Var pearson_correlation(const Var& predictions, const Var& targets, Communicator& comm, Site caller) try {
  const Site site = LossCall("pearson_correlation", caller);
  check(predictions, targets, false);
  const Moments both = moments({columns(predictions), columns(targets)}, {{0, 1}}, comm, Columns::counterparts, site);
  const Var correlation = both.covariances[0] / sqrt(both.variances[0]) / sqrt(both.variances[1]);
  return of_outputs(correlation, predictions, comm, site);
} catch (Error& error) {
  fail_in("pearson_correlation", caller, error);
}

Var r2_score(const Var& predictions, const Var& targets, Communicator& comm, Site caller) try {
  const Site site = LossCall("r2_score", caller);
  const auto [count, means, variances, none] = moments_of_errors(predictions, targets, comm, site);
  const Var errors = variances[1] + square(means[1]);
  const Tensor no_errors = equal(errors.value(), zeros_like(errors));
  return of_outputs(explained(errors, no_errors, variances[0], means[0]), predictions, comm, site);
} catch (Error& error) {
  fail_in("r2_score", caller, error);
}

Var explained_variance(const Var& predictions, const Var& targets, Communicator& comm, Site caller) try {
  const Site site = LossCall("explained_variance", caller);
  const auto [count, means, variances, none] = moments_of_errors(predictions, targets, comm, site);
  const Tensor no_errors = vanishes(variances[1], means[1]);
  return of_outputs(explained(variances[1], no_errors, variances[0], means[0]), predictions, comm, site);
} catch (Error& error) {
  fail_in("explained_variance", caller, error);
}

}  // namespace weft
