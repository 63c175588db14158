// SPDX-License-Identifier: Apache-2.0
#pragma once
// The verdict on a step, given its truth. Ranks that compare what they have themselves put it together from parts.
#include <functional>

#include "tools/weft/verdict/distance.h"
#include "tools/weft/verdict/step_causes.h"

namespace weft::verify {

// A gradient of one rank against the truth.
struct StepRow {
  std::string parameter;
  int rank;
  int64_t elements;
  Distance distance;

  bool wrong() const { return !(distance.error <= limit); }
};

// The wrong parameters, from the smallest, in which a cause is sought: without the largest of many.
inline constexpr int64_t most_elements = 1 << 21;
std::vector<std::string> sought_in(const std::vector<StepRow>& rows, int64_t at_most = most_elements);
// Whether others are right, and not zero.
bool others_right(const std::vector<StepRow>& rows);

// Mistakes that the data could not show: none if ranks share samples, then they are alike by intention. Parameters are
// asked for from the smallest, until every mistake would show.
using LocalOf = std::function<ParameterEvidence(const std::string& name)>;
std::vector<std::string> blindness(const std::map<std::string, int64_t>& sizes, const LocalOf& local_of, int ranks,
                                   const std::vector<int64_t>& rows);

struct FoundInStep {
  std::vector<StepRow> rows;
  std::optional<StepCause> cause;  // as sought in the smallest wrong parameters
  std::vector<std::string> blind_to, lost;
};
Verdict verdict(const FoundInStep& found);

}  // namespace weft::verify
