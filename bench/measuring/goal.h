// SPDX-License-Identifier: Apache-2.0
#pragma once
// A Goal is a statement about speed together with the measurement that decides it. Goals register themselves, as ops
// do, so a new goal is one object in one file.
#include <string>
#include <vector>

#include "bench/measuring/measure.h"

namespace weft::bench {

enum class Sense { at_least, at_most, shown };  // `shown` has no bound and is only printed

// One measured number of a goal.
struct Check {
  std::string what;
  std::string ours, theirs;  // the two medians with their units
  Middle value;              // over the rounds; the bound applies to its median
  Sense sense = Sense::shown;
  double bound = 0;

  double margin() const;  // the factor by which it is better than the bound; below 1 if it does not hold
  bool holds() const { return sense == Sense::shown || margin() >= 1; }
};

// Thrown by a measurement that is impossible with this machine or build.
struct Unavailable {
  std::string reason;
};

class Goal {
 public:
  using Measure = std::vector<Check> (*)();
  Goal(std::string name, std::string statement, Measure measure);
  Goal(const Goal&) = delete;
  Goal& operator=(const Goal&) = delete;

  static const std::vector<const Goal*>& all();
  static const Goal* find(const std::string& name);  // null if there is none

  const std::string name, statement;
  const Measure measure;
};

}  // namespace weft::bench
