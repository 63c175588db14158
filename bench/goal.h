#pragma once
// A Goal is a statement about speed, with the measurement that judges it. Goals register themselves, as ops do: a new
// one is one object in one file.
#include <string>
#include <vector>

#include "bench/measure.h"

namespace weft::bench {

enum class Sense { at_least, at_most, shown };  // `shown` has no bound: it is there to be read

// One measured number of a goal.
struct Check {
  std::string what;
  std::string ours, theirs;  // the two medians with their units
  Middle value;              // what the bound is on, over the rounds
  Sense sense = Sense::shown;
  double bound = 0;

  double margin() const;  // above 1 by how much it holds
  bool holds() const { return sense == Sense::shown || margin() >= 1; }
};

// Thrown by a measurement that cannot be made here.
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
