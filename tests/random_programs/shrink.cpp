// SPDX-License-Identifier: Apache-2.0
#include "tests/random_programs/shrink.h"

#include <algorithm>

namespace weft::random_programs {

namespace {

Program with_ranks(Program program, int ranks) {
  program.ranks = ranks;
  for (Partition& partition : program.partitions) partition.color.resize(static_cast<size_t>(ranks));
  return fitting(std::move(program));
}

Program without_partition(Program program, int gone) {
  program.partitions.erase(program.partitions.begin() + gone);
  for (Step& step : program.steps) {
    if (step.group == gone) step.group = 0;
    if (step.group > gone) --step.group;
  }
  return fitting(std::move(program));
}

// Everything that is one step smaller, the largest reductions first.
std::vector<Program> smaller(const Program& program) {
  std::vector<Program> all;
  const auto with = [&](auto change) {
    Program copy = program;
    change(copy);
    all.push_back(fitting(std::move(copy)));
  };
  for (int ranks = 1; ranks < program.ranks; ++ranks) all.push_back(with_ranks(program, ranks));
  if (program.terms.size() > 1)
    for (size_t i = 0; i < program.terms.size(); ++i)
      with([&](Program& p) { p.terms.erase(p.terms.begin() + static_cast<std::ptrdiff_t>(i)); });
  for (size_t i = program.steps.size(); i-- > 0;) all.push_back(without(program, static_cast<int>(i)));
  for (size_t i = 1; i < program.partitions.size(); ++i) all.push_back(without_partition(program, static_cast<int>(i)));
  for (size_t i = 0; i < program.steps.size(); ++i) {
    if (program.steps[i].piece) with([&](Program& p) { p.steps[i].piece = 0; });
    if (program.steps[i].halves) with([&](Program& p) { p.steps[i].halves = false; });
    if (program.steps[i].group) with([&](Program& p) { p.steps[i].group = 0; });
  }
  for (size_t i = 0; i < program.terms.size(); ++i)
    if (program.terms[i].weights != Weights::equal) with([&](Program& p) { p.terms[i].weights = Weights::equal; });
  if (!program.declares_world) with([&](Program& p) { p.declares_world = true; });
  return all;
}

}  // namespace

Program shrunk(const Program& program, const Finding& finding, const Rules& rules) {
  Rules alone = rules;
  alone.drops = false;
  const auto same = [&](const Program& candidate) {
    if (candidate.terms.empty()) return false;
    const Finding found = tried(candidate, alone).finding;
    return found.verdict == finding.verdict && found.what == finding.what;
  };
  Program best = without_unused(program);
  if (!same(best)) best = program;
  for (bool smaller_found = true; smaller_found;) {
    smaller_found = false;
    for (const Program& candidate : smaller(best)) {
      const Program clean = without_unused(candidate);
      if (!same(clean)) continue;
      best = clean;
      smaller_found = true;
      break;
    }
  }
  return best;
}

}  // namespace weft::random_programs
