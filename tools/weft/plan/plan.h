// SPDX-License-Identifier: Apache-2.0
#pragma once
// Predicts the time of a training step on any number of ranks, each with as many samples as a rank of the recorded
// runs.
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tools/weft/plan/call_cost.h"
#include "tools/weft/plan/recorded_run.h"

namespace weft::plan {

struct PlannedStep {
  int64_t ranks = 0;
  double computing = 0;                          // seconds
  std::array<double, Traffic::verbs> seconds{};  // of the calls, by verb
  double images_per_second = 0;
  double efficiency = 0;  // the part of the time that the computing on the fewest recorded ranks takes

  double communication() const;
  double whole() const { return computing + communication(); }
  Verb longest() const;  // the verb that takes most time
};

// A number as a function of the number of ranks n: constant + slope n.
struct Line {
  double constant = 0, slope = 0;
  double at(int64_t ranks) const { return std::max(constant + slope * static_cast<double>(ranks), 0.0); }
};

class Plan {
 public:
  struct Options {
    std::optional<double> computing = std::nullopt;  // seconds of a step, in place of what the runs took
    bool over_link = false;                          // the runs were recorded over the link, not on one node
  };
  // With one run, computing and calls are constant, and sizes grow with the batch where they do in contrastive losses.
  // With several, on different numbers of ranks, all of these are the lines that fit them best.
  Plan(std::vector<RecordedRun> runs, const NodeLink& link, Options options);

  PlannedStep at(int64_t ranks) const;

 private:
  struct Calls {
    Line small, large, size;
  };
  std::array<double, Traffic::verbs> seconds_of_calls(int64_t ranks) const;

  const NodeLink link_;
  double images_ = 0;  // of a rank in a step
  int64_t fewest_ranks_ = 0;
  std::array<Calls, Traffic::verbs> calls_;
  Line computing_;
};

// For people, and for programs.
std::string text_of(const std::vector<PlannedStep>& steps);
std::string json_of(const std::vector<PlannedStep>& steps);

}  // namespace weft::plan
