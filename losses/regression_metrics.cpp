#include "losses/regression_metrics.h"

#include "collectives/share.h"
#include "collectives/spreads.h"
#include "engine/ops/elementwise.h"
#include "engine/ops/normalize.h"
#include "engine/ops/reduce.h"
#include "engine/ops/shape_ops.h"
#include "losses/case.h"
#include "losses/loss_call.h"
#include "losses/moments.h"
#include "losses/precision.h"
#include "losses/states.h"

namespace weft {
namespace {

void check(const Var& predictions, const Var& targets, bool of_rows) {
  const int rank = predictions.shape().rank();
  require(predictions.shape() == targets.shape(), "predictions ", predictions.shape(), " for targets ",
          targets.shape());
  require(rank == 2 || (rank == 1 && !of_rows), of_rows ? "rows" : "one value or row for each sample",
          " are needed, not ", predictions.shape());
}

// One per output, of which a vector of samples has one.
Var columns(const Var& x) { return reshape(precise(x), {x.shape()[0], x.shape().product(1, x.shape().rank())}); }
Var squared_error(const Var& predictions, const Var& targets) {
  return square(precise(predictions) - precise(targets));
}

Tensor zeros_like(const Var& x) { return Tensor::zeros(x.shape(), x.dtype(), x.device()); }
Var full_like(const Var& x, double value) { return derived(Tensor::full(x.shape(), value, x.dtype(), x.device()), x); }

// Its gradient is zero at zero.
Var root(const Var& x) {
  const Var none = derived(equal(x.value(), zeros_like(x)), x);
  return where(none, full_like(x, 0), sqrt(where(none, full_like(x, 1), x)));
}

// Where all values were equal: what the rounding of their mean leaves of a variance is much less than this, and
// different values leave more, unless one in 64 differs by a unit in its last place.
Tensor vanishes(const Var& variance, const Var& mean) {
  const double unit = variance.dtype() == DType::f64 ? 0x1p-52 : 0x1p-23;
  return less_equal(variance.value(), square(Var(mean.value()) * (unit / 8)).value());
}

// 1 - errors / variance of the targets. Of targets that are all equal: 1 if there are no errors either, else 0.
Var explained(const Var& errors, const Tensor& no_errors, const Var& variance, const Var& mean) {
  const Var all_equal = derived(vanishes(variance, mean), variance);
  const Var fixed = derived(no_errors.to(errors.dtype()), errors);
  return where(all_equal, fixed, 1 - errors / where(all_equal, full_like(variance, 1), variance));
}

// Every rank has computed the same; what it makes of that is its own affair.
Var of_outputs(const Var& metric, const Var& predictions, Communicator& comm, Site site) {
  return reshape(vary(metric, comm, site), predictions.shape().without(0));
}

// Of the targets, and of the errors.
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

namespace {

using Inputs = LossCase::Inputs;

// Cases, of two outputs. Every rank has computed the same, which counts once.
template <class F> auto counted_once(F metric) {
  return
      [=](const Inputs& x, Communicator& comm) { return keep_on(mean(metric(x.rows[0], x.rows[1], comm)), {0}, comm); };
}
template <class F> auto of_all(F metric) {
  return [=](const Inputs& x) { return mean(metric(x.rows[0], x.rows[1])); };
}
Var centered(const Var& x) { return x - repeat(mean(x, 0), 0, x.shape()[0]); }
Var mean_errors(const Var& a, const Var& b) { return mean(square(a - b), 0); }
Var correlation(const Var& a, const Var& b) {
  return mean(centered(a) * centered(b), 0) / sqrt(variance(a, 0) * variance(b, 0));
}
Var row_cosines(const Var& a, const Var& b) { return sum(a * b, 1) / (norm(a, 1) * norm(b, 1)); }

const LossCase mean_squared_error_case{
    "mean squared error",
    "",
    {{{2}, {2}}},
    counted_once([](auto& a, auto& b, auto& comm) { return mean_squared_error(a, b, comm); }),
    of_all(mean_errors)};
const LossCase root_mean_squared_error_case{
    "root mean squared error",
    "",
    {{{2}, {2}}},
    counted_once([](auto& a, auto& b, auto& comm) { return root_mean_squared_error(a, b, comm); }),
    of_all([](auto& a, auto& b) { return sqrt(mean_errors(a, b)); })};
const LossCase pearson_case{"Pearson correlation",
                            "",
                            {{{2}, {2}}},
                            counted_once([](auto& a, auto& b, auto& comm) { return pearson_correlation(a, b, comm); }),
                            of_all(correlation)};
const LossCase r2_case{"R2",
                       "",
                       {{{2}, {2}}},
                       counted_once([](auto& a, auto& b, auto& comm) { return r2_score(a, b, comm); }),
                       of_all([](auto& a, auto& b) { return 1 - mean_errors(a, b) / variance(b, 0); })};
const LossCase explained_variance_case{
    "explained variance",
    "",
    {{{2}, {2}}},
    counted_once([](auto& a, auto& b, auto& comm) { return explained_variance(a, b, comm); }),
    of_all([](auto& a, auto& b) { return 1 - variance(a - b, 0) / variance(b, 0); })};
const LossCase cosine_mean_case{
    "cosine similarity",
    "mean",
    {{{3}, {3}}},
    counted_once([](auto& a, auto& b, auto& comm) { return cosine_similarity(a, b, Over::mean, comm); }),
    of_all([](auto& a, auto& b) { return mean(row_cosines(a, b)); })};
const LossCase cosine_sum_case{
    "cosine similarity",
    "sum",
    {{{3}, {3}}},
    counted_once([](auto& a, auto& b, auto& comm) { return cosine_similarity(a, b, Over::sum, comm); }),
    of_all([](auto& a, auto& b) { return sum(row_cosines(a, b)); })};

const LossCase mixed_case{"metrics and a loss",
                          "of single values",
                          {{{}, {}}},
                          [](const Inputs& x, Communicator& comm) {
                            const Var &a = x.rows[0], &b = x.rows[1];
                            const Var metrics =
                                root_mean_squared_error(a, b, comm) - pearson_correlation(a, b, comm) * 0.3;
                            return keep_on(metrics, {0}, comm) + share(sum(softplus(a * b)), x.total, comm);
                          },
                          [](const Inputs& x) {
                            const Var &a = x.rows[0], &b = x.rows[1];
                            return sqrt(mean_errors(a, b)) - correlation(a, b) * 0.3 + mean(softplus(a * b));
                          }};

}  // namespace
}  // namespace weft
