// SPDX-License-Identifier: Apache-2.0
// States, compared with plain formulas on the whole batch.
#include "tests/cases/losses/loss_case.h"
#include "weft/collectives/placement_conversions.h"
#include "weft/collectives/share.h"
#include "weft/engine/maths/maths.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/index.h"
#include "weft/engine/ops/reduce.h"
#include "weft/engine/ops/shape_ops.h"
#include "weft/losses/metrics/states.h"

namespace weft {
namespace {

using Inputs = LossCase::Inputs;

int64_t rows_of(const Var& x) { return x.shape()[0]; }
Var waves(const Var& rows, int64_t first) {  // a different value for every sample
  std::vector<double> values;
  for (int64_t i = 0; i < rows_of(rows); ++i) values.push_back(0.3 + maths::sin(static_cast<double>(first + i)));
  return constant_like(Tensor::from({rows_of(rows)}, values, DType::f64, rows.device()), rows);
}
// A loss in which every sample uses a global statistic, a vector of three, in a different way. So ranks have different
// gradients of the statistic, and only the exact adjoint of the exchange gives correct results.
Var used(const Inputs& x, const Var& statistic) {
  return sum(mul_along(tanh(mul_along(x.rows[0], statistic, -1)), waves(x.rows[0], x.first), 0));
}
Var used_share(const Inputs& x, const Var& statistic, Communicator& comm) {
  return share(used(x, statistic), x.total, comm);
}
Var used_whole(const Inputs& x, const Var& statistic) { return used(x, statistic) / static_cast<double>(x.total); }

Var own_mean(const Var& x) { return sum(x, 0) / std::max(1.0, static_cast<double>(rows_of(x))); }
double count(const Var& x) { return static_cast<double>(rows_of(x)); }

Var of_sums_and_means(const Var& sums, const Var& means) { return sums * sum(exp(means), 0); }
const LossCase sums_and_means{
    "States",
    "sums, two batches",
    {{{3}, {2, 3}}},
    [](const Inputs& x, Communicator& comm) {
      const auto part = [](const Var& v, int which) {
        const int64_t n = rows_of(v), half = n / 2;
        return which == 0 ? slice(v, 0, 0, half) : slice(v, 0, half, n);
      };
      States states(comm);
      const auto means = states.mean("means", own_mean(part(x.rows[1], 0)), count(part(x.rows[1], 0)));
      const auto sums = states.sum("sums", sum(part(x.rows[0], 0), 0));
      sums.update(sum(part(x.rows[0], 1), 0));
      means.update(own_mean(part(x.rows[1], 1)), count(part(x.rows[1], 1)));
      states.exchange();
      return used_share(x, of_sums_and_means(sums.value(), means.value()), comm);
    },
    [](const Inputs& x) { return used_whole(x, of_sums_and_means(sum(x.rows[0], 0), mean(x.rows[1], 0))); }};

Var of_extremes(const Var& high, const Var& low, const Var& sums) { return high * square(low) + sums; }
const LossCase extremes{"States",
                        "extremes beside a sum",
                        {{{3}, {3}}},
                        [](const Inputs& x, Communicator& comm) {
                          States states(comm);
                          const auto high = states.max("high", x.rows[0]);
                          const auto sums = states.sum("sums", sum(x.rows[1], 0));
                          const auto low = states.min("low", x.rows[1]);
                          states.exchange();
                          return used_share(x, of_extremes(high.value(), low.value(), sums.value()), comm);
                        },
                        [](const Inputs& x) {
                          return used_whole(x, of_extremes(max(x.rows[0], 0), min(x.rows[1], 0), sum(x.rows[1], 0)));
                        }};

Var even_samples(const Var& rows, int64_t first) {
  std::vector<double> even;
  for (int64_t i = first % 2; i < rows_of(rows); i += 2) even.push_back(static_cast<double>(i));
  const Shape count = {static_cast<int64_t>(even.size())};
  return gather_rows(rows, constant_like(Tensor::from(count, even, DType::i64, rows.device()), rows));
}
Var of_rows(const Var& all, const Var& even, const Var& sums, const Var& high) {
  const Var ordered = sum(mul_along(all, waves(all, 0), 0), 0), of_even = mul_along(even, waves(even, 5), 0);
  return sum(square(ordered), 0) + sum(square(of_even), 0) + sums * high;
}
const LossCase rows{"States",
                    "rows beside others",
                    {{{3}, {2, 3}}},
                    [](const Inputs& x, Communicator& comm) {
                      States states(comm);
                      const auto all = states.cat("all", x.rows[1]);
                      const auto sums = states.sum("sums", sum(x.rows[0], 0));
                      const auto even = states.cat("even", even_samples(x.rows[0], x.first));
                      const auto high = states.max("high", x.rows[0]);
                      states.exchange();
                      return used_share(x, of_rows(all.value(), even.value(), sums.value(), high.value()), comm);
                    },
                    [](const Inputs& x) {
                      const Var& y = x.rows[0];
                      return used_whole(x, of_rows(x.rows[1], even_samples(y, 0), sum(y, 0), max(y, 0)));
                    }};

}  // namespace
}  // namespace weft
