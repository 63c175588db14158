// SPDX-License-Identifier: Apache-2.0
#pragma once
// What "equal to one process" means, row by row: each a difference between weights after training on the ranks of a
// group and those that they should be.
#include "tests/training/training_cases.h"

namespace weft {

struct TrainingRow {
  std::string name;
  double limit;  // zero: equal to the bit
  std::function<double(Communicator& comm)> difference;
};
const std::vector<TrainingRow>& training_table();

}  // namespace weft
