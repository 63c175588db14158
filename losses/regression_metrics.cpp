#include "losses/regression_metrics.h"

#include <algorithm>

#include "collectives/share.h"
#include "collectives/spreads.h"
#include "engine/ops/elementwise.h"
#include "engine/ops/normalize.h"
#include "engine/ops/reduce.h"
#include "engine/ops/shape_ops.h"
#include "losses/case.h"
#include "losses/precision.h"
#include "losses/states.h"

namespace weft {
namespace {

void check(const char* metric, const Var& predictions, const Var& targets, bool of_rows) {
  const int rank = predictions.shape().rank();
  require(predictions.shape() == targets.shape(), metric, ": predictions ", predictions.shape(), " for targets ",
          targets.shape());
  require(rank == 2 || (rank == 1 && !of_rows), metric, of_rows ? ": rows" : ": one value or row for each sample",
          " are needed, not ", predictions.shape());
}

// Of this rank, and zero where it has no samples.
Var average(const Var& x) { return sum(x, 0) / static_cast<double>(std::max<int64_t>(x.shape()[0], 1)); }
Var mean_over_ranks(const char* name, const Var& per_sample, Communicator& comm, Site site) {
  States states(comm);
  const auto result = states.mean(name, average(per_sample), static_cast<double>(per_sample.shape()[0]));
  states.exchange(site);
  return result.value();
}

// What each rank has measured of its own samples, one row per rank, is that of all samples in two parts: deviations
// within ranks, about their own means, and those of the means, weighted by samples. All terms of a square are squares,
// so nothing cancels.
class Deviations {
 public:
  explicit Deviations(const Var& counts)
      : counts_(detach(counts)), weights_(counts_ / repeat(sum(counts_), 0, counts_.size())) {}

  Var of_means(const Var& means) const { return sub_along(means, sum(mul_along(means, weights_, 0), 0), -1); }
  Var all(const Var& within, const Var& a, const Var& b) const { return sum(within + mul_along(a * b, counts_, 0), 0); }

 private:
  Var counts_, weights_;
};

Var count_of(const Var& x) {
  return derived(Tensor::full({}, static_cast<double>(x.shape()[0]), x.dtype(), x.device()), x);
}
// One per output, of which a vector of samples has one.
Var columns(const Var& x) { return reshape(precise(x), {x.shape()[0], x.shape().product(1, x.shape().rank())}); }
Var squared_error(const Var& predictions, const Var& targets) {
  return square(precise(predictions) - precise(targets));
}

}  // namespace

Var mean_squared_error(const Var& predictions, const Var& targets, Communicator& comm, Site site) {
  check("mean_squared_error", predictions, targets, false);
  return mean_over_ranks("squared errors", squared_error(predictions, targets), comm, site);
}

Var root_mean_squared_error(const Var& predictions, const Var& targets, Communicator& comm, Site site) {
  check("root_mean_squared_error", predictions, targets, false);
  return sqrt(mean_over_ranks("squared errors", squared_error(predictions, targets), comm, site));
}

Var cosine_similarity(const Var& predictions, const Var& targets, Over reduction, Communicator& comm, Site site) {
  check("cosine_similarity", predictions, targets, true);
  const Var cosines = sum(l2_normalize(precise(predictions)) * l2_normalize(precise(targets)), 1);
  if (reduction == Over::mean) return mean_over_ranks("cosines", cosines, comm, site);
  States states(comm);
  const auto result = states.sum("cosines", sum(cosines));
  states.exchange(site);
  return result.value();
}

Var pearson_correlation(const Var& predictions, const Var& targets, Communicator& comm, Site site) {
  check("pearson_correlation", predictions, targets, false);
  const Var a = columns(predictions), b = columns(targets), mean_a = average(a), mean_b = average(b);
  const Var own_a = sub_along(a, mean_a, -1), own_b = sub_along(b, mean_b, -1);
  States states(comm);
  const auto counts = states.stack("samples", count_of(a));
  const auto means_a = states.stack("means of predictions", mean_a), means_b = states.stack("means of targets", mean_b);
  const auto aa = states.stack("squares of predictions", sum(square(own_a), 0)),
             bb = states.stack("squares of targets", sum(square(own_b), 0)),
             ab = states.stack("products", sum(own_a * own_b, 0));
  states.exchange(site);
  const Deviations deviations(counts.value());
  const Var da = deviations.of_means(means_a.value()), db = deviations.of_means(means_b.value());
  const Var scale = sqrt(deviations.all(aa.value(), da, da)) * sqrt(deviations.all(bb.value(), db, db));
  return reshape(deviations.all(ab.value(), da, db) / scale, predictions.shape().without(0));
}

Var r2_score(const Var& predictions, const Var& targets, Communicator& comm, Site site) {
  check("r2_score", predictions, targets, false);
  const Var a = columns(predictions), b = columns(targets), mean = average(b);
  States states(comm);
  const auto counts = states.stack("samples", count_of(b)), means = states.stack("means of targets", mean),
             squares = states.stack("squares of targets", sum(square(sub_along(b, mean, -1)), 0)),
             errors = states.sum("squared errors", sum(squared_error(a, b), 0));
  states.exchange(site);
  const Deviations deviations(counts.value());
  const Var d = deviations.of_means(means.value());
  return reshape(1 - errors.value() / deviations.all(squares.value(), d, d), predictions.shape().without(0));
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
