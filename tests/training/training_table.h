// SPDX-License-Identifier: Apache-2.0
#pragma once
// The rows of "equal to one process": each is a difference between the weights after training on the ranks of a group
// and the expected ones.
#include "tests/training/training_cases.h"

namespace weft {

struct TrainingRow {
  std::string name;
  double limit;  // 0: bit-identical
  std::function<double(Communicator& comm)> difference;
};
const std::vector<TrainingRow>& training_table();

}  // namespace weft
