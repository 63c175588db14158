// SPDX-License-Identifier: Apache-2.0
#include "tools/weft/explain/mixed.h"

#include "tools/weft/explain/lists.h"
#include "tools/weft/explain/terms.h"

namespace weft::verify {
namespace {

// Whose gradients are those of the other parameter, if those of each rank are the one's or the other's.
std::vector<size_t> from_other(const Given& given, const ParameterEvidence& other) {
  std::vector<Matrix> all = contributions(given.parameter, given.dump, 0);
  std::ranges::move(contributions(other, given.dump, 0), std::back_inserter(all));
  std::vector<const Matrix*> pointers;
  for (const Matrix& each : all) pointers.push_back(&each);
  const Terms terms(pointers);
  if (!terms.tell()) return {};
  const Fitted fitted = terms.fitted(given.made.tensors[0], given.parameter.precision.epsilon);
  std::vector<size_t> ranks;
  const Eigen::Index count = terms.count() / 2, passes = given.passes();
  for (Eigen::Index r = 0; r * passes < count; ++r)
    if (fitted.values.segment(count + r * passes, passes).mean() > 0.5) ranks.push_back(static_cast<size_t>(r));
  return ranks;
}

}  // namespace

std::vector<Described> by_other_parameter(const Given& given) {
  std::vector<Described> all;
  if (given.parameter.layout || !given.whole()) return all;
  for (const ParameterEvidence& other : given.dump.parameters) {
    if (other.name == given.parameter.name || other.layout || other.local.size() != given.ranks() ||
        other.local[0].size() != given.parameter.local[0].size() ||
        other.reduced[0].size() != given.made.tensors[0].size())
      continue;
    const std::vector<size_t> ranks = from_other(given, other);
    if (ranks.empty()) continue;
    const double error = given.error([&](const ParameterEvidence& of) {
      ParameterEvidence mixed = of;
      for (const size_t r : ranks) mixed.local[r] = other.local[r];
      return should_be(mixed, given.dump);
    });
    std::vector<std::string> names;
    for (const size_t r : ranks) names.push_back(std::to_string(r));
    const std::string whose = ranks.size() == given.ranks()
                                  ? "all ranks have"
                                  : "of rank" + std::string(names.size() > 1 ? "s " : " ") + listed(names) + " it has";
    if (error <= limit)
      all.push_back({whose + " the gradient of '" + other.name + "'", error,
                     "let all ranks put parameters into buckets in the same order"});
  }
  return all;
}

}  // namespace weft::verify
