// SPDX-License-Identifier: Apache-2.0
#include "bench/measuring/goal.h"

#include <cmath>

namespace weft::bench {
namespace {
std::vector<const Goal*>& registry() {
  static std::vector<const Goal*> goals;
  return goals;
}
}  // namespace

double Check::margin() const {
  switch (sense) {
    case Sense::at_least: return value.median / bound;
    case Sense::shown: return INFINITY;
    case Sense::at_most: break;
  }
  // With a bound of zero, as for a number of allocations, the margin is 1 or 0.
  return value.median <= bound ? (value.median > 0 ? bound / value.median : 1) : bound / value.median;
}

Goal::Goal(std::string name, std::string statement, Measure measure)
    : name(std::move(name)), statement(std::move(statement)), measure(measure) {
  registry().push_back(this);
}

const std::vector<const Goal*>& Goal::all() { return registry(); }

const Goal* Goal::find(const std::string& name) {
  for (const Goal* goal : all())
    if (goal->name == name) return goal;
  return nullptr;
}

}  // namespace weft::bench
