// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a job counts, and may divide by: samples, tokens, the ranks of a node.
#include <string>

#include "tools/weft/truth/sample.h"

namespace weft::verify {

struct Count {
  std::string name;
  Matrix values;  // by rank and micro-batch; (W, 1) by rank alone; (1, 1) of the job
};

}  // namespace weft::verify
