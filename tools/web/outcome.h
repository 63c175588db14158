// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a program does on all ranks, and how its gradients differ from those of another.
#include <optional>

#include "tools/web/evaluation.h"
#include "weft/collectives/checks/tape_table.h"

namespace weft::web {

struct NamedValues {
  std::string name;
  int line;
  bool leaf;
  std::vector<std::vector<double>> values, cotangents, gradients;  // of each rank; gradients are of leaves
};

struct Outcome {
  int ranks;
  std::vector<NamedValues> names;  // in the order of the program
  std::vector<int> lines_of_nodes;
  TapeTable tapes;
  std::string printed;
  bool walked = false;  // whether there are cotangents
  double objective = 0;
  double slope = 0;  // along a random direction, as the gradients say
};

// An Error of any rank is thrown.
Outcome run(const Program& program, int ranks, const Settings& settings = {});
// The same slope, by differences of the objective. Empty where no backward has run.
std::optional<double> slope_by_differences(const Program& program, int ranks, uint64_t seed);

struct Comparison {
  bool equal;       // gradients of all leaves, on random values too
  bool equal_here;  // on the values that the program says
  bool equal_objectives;
  std::vector<std::string> names;  // of the usual mistakes that have the same gradients
  std::vector<std::string> says;   // what differs, in sentences
};
// An Error if the other has other leaves.
Comparison compare(const Program& program, const Program& right, int ranks);

}  // namespace weft::web
