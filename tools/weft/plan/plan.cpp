// SPDX-License-Identifier: Apache-2.0
#include "tools/weft/plan/plan.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace weft::plan {
namespace {

using Runs = std::vector<RecordedRun>;

// The line of least squares through f(run). If all runs have the same number of ranks, the constant, or what is
// proportional to the number of ranks.
template <class F> Line fit(const Runs& runs, bool is_proportional, F f) {
  const auto count = static_cast<double>(runs.size());
  double ranks = 0, value = 0, product = 0, square = 0;
  for (const RecordedRun& run : runs) ranks += static_cast<double>(run.ranks) / count, value += f(run) / count;
  for (const RecordedRun& run : runs) {
    const double offset = static_cast<double>(run.ranks) - ranks;
    product += offset * (f(run) - value), square += offset * offset;
  }
  if (square == 0) return is_proportional ? Line{0, value / ranks} : Line{value, 0};
  return {value - product / square * ranks, product / square};
}

// The samples of all ranks are in what ranks gather, and each rank has a gradient of every one of them.
bool grows_with_batch(Verb verb) {
  return gathers(verb) || verb == Verb::reduce_scatter || verb == Verb::reduce_scatter_v;
}

}  // namespace

double PlannedStep::communication() const { return std::accumulate(seconds.begin(), seconds.end(), 0.0); }
Verb PlannedStep::longest() const {
  return static_cast<Verb>(std::max_element(seconds.begin(), seconds.end()) - seconds.begin());
}

Plan::Plan(Runs runs, const NodeLink& link, Options options) : link_(link) {
  require(!runs.empty(), "plan: a recorded run is needed");
  const auto fewer = [](const RecordedRun& a, const RecordedRun& b) { return a.ranks < b.ranks; };
  std::stable_sort(runs.begin(), runs.end(), fewer);
  images_ = runs[0].images, fewest_ranks_ = runs[0].ranks;
  for (const RecordedRun& run : runs)
    require(std::abs(run.images - images_) <= 0.02 * images_, "plan: a rank has ", run.images,
            " images in each step of the run on ", run.ranks, " ranks, and ", images_, " on ", fewest_ranks_,
            "; record runs whose --batch is in proportion to their ranks");
  for (size_t v = 0; v < Traffic::verbs; ++v) {
    const auto of = [v](const RecordedRun& run) -> const RecordedRun::Calls& { return run.calls[v]; };
    calls_[v] = {
        fit(runs, false, [&](const RecordedRun& run) { return of(run).small; }),
        fit(runs, false, [&](const RecordedRun& run) { return of(run).large; }),
        fit(runs, grows_with_batch(static_cast<Verb>(v)), [&](const RecordedRun& run) { return of(run).size; })};
  }
  computing_ = fit(runs, false, [&](const RecordedRun& run) {
    const auto calls = options.over_link ? seconds_of_calls(run.ranks) : std::array<double, Traffic::verbs>{};
    return std::max(run.seconds - std::accumulate(calls.begin(), calls.end(), 0.0), 0.0);
  });
  if (options.computing) computing_ = {*options.computing, 0};
}

std::array<double, Traffic::verbs> Plan::seconds_of_calls(int64_t ranks) const {
  std::array<double, Traffic::verbs> seconds{};
  for (size_t v = 0; v < Traffic::verbs; ++v) {
    const auto& [small, large, size] = calls_[v];
    const Verb verb = static_cast<Verb>(v);
    MessageCost cost = comparison(verb, ranks, link_) * (small.at(ranks) + large.at(ranks));
    if (large.at(ranks) > 0) cost += transfer(verb, size.at(ranks), ranks, link_) * large.at(ranks);
    seconds[v] = weft::plan::seconds(cost, link_, ranks);
  }
  return seconds;
}

PlannedStep Plan::at(int64_t ranks) const {
  PlannedStep step{ranks, computing_.at(ranks), seconds_of_calls(ranks)};
  step.images_per_second = images_ * static_cast<double>(ranks) / step.whole();
  step.efficiency = computing_.at(fewest_ranks_) / step.whole();
  return step;
}

}  // namespace weft::plan
