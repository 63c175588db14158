// SPDX-License-Identifier: Apache-2.0
#include "tools/weft/explain/clipped.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tools/weft/explain/lists.h"
#include "tools/weft/explain/norms.h"

namespace weft::verify {
namespace {

// Of all gradients of a rank.
double length(const Norm& norm, const Dump& dump, size_t rank) {
  double all = 0;
  for (const ParameterEvidence& each : dump.parameters) {
    const auto& passes = each.local[rank];
    if (passes.empty()) continue;
    const Matrix sum = std::accumulate(passes.begin() + 1, passes.end(), passes[0]);
    all = norm.together(all, norm.power(sum));
  }
  return norm.root(all);
}

// To which length, if to one. At least two ranks have to have been longer.
std::optional<double> clipped_to(const Norm& norm, const Dump& dump, const Weights& weights) {
  constexpr double near = 1e-4;
  double most = 0, least = 0, longest = 0;  // of those that were shortened, and of the others
  int shortened = 0;
  for (Eigen::Index r = 0; r < weights.values.rows(); ++r) {
    const double weight = weights.values(r, 0), now = weight * length(norm, dump, static_cast<size_t>(r));
    const double tolerance = std::max(near, weights.known_to(r, 0));
    if (weight > 1 + tolerance) return std::nullopt;
    if (weight > 1 - tolerance) {
      longest = std::max(longest, now * (1 - tolerance));
      continue;
    }
    const double from = now * (1 - tolerance / weight), to = now * (1 + tolerance / weight);
    most = shortened == 0 ? to : std::min(most, to);
    least = std::max(least, from);
    ++shortened;
  }
  if (shortened < 2 || least > most || longest > most) return std::nullopt;
  return (least + most) / 2;
}

}  // namespace

std::optional<std::string> clipped_before(const Given& given, const std::vector<Weights>& of_ranks) {
  const Weights& weights = of_ranks[0];
  for (const Weights& each : of_ranks)
    if (each.values != weights.values) return std::nullopt;
  if (weights.values != weights.values.col(0).replicate(1, weights.values.cols())) return std::nullopt;
  std::vector<std::string> all;
  for (const Norm& norm : norms())
    if (const auto to = clipped_to(norm, given.dump, weights)) {
      char number[32];
      std::snprintf(number, sizeof number, "%.3g", *to);
      const std::string by = *norm.name == 0 ? "" : std::string(" by ") + norm.name;
      all.push_back("clipped to " + std::string(number) + by + " before the reduction");
    }
  if (all.empty()) return std::nullopt;
  return listed(all, ", or ");
}

}  // namespace weft::verify
