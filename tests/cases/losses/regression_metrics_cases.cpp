// SPDX-License-Identifier: Apache-2.0
#include "tests/cases/losses/loss_case.h"
#include "weft/collectives/placement_conversions.h"
#include "weft/collectives/share.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/normalize.h"
#include "weft/engine/ops/reduce.h"
#include "weft/engine/ops/shape_ops.h"
#include "weft/losses/common/loss_call.h"
#include "weft/losses/common/moments.h"
#include "weft/losses/common/precision.h"
#include "weft/losses/metrics/regression_metrics.h"
#include "weft/losses/metrics/states.h"

namespace weft {
namespace {

using Inputs = LossCase::Inputs;

// Every rank has computed the same metric, which counts once.
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
