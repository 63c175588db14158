// SPDX-License-Identifier: Apache-2.0
#pragma once
// Weights in terms of what a job counts: "all tokens / (ranks x own tokens)".
#include <string>
#include <vector>

#include "tools/weft/dump/evidence.h"

namespace weft::verify {

// By rank and micro-batch, as multiples of what they should be, and how far off each may be: infinitely, if its
// gradient is zero. One row or one column stand for all.
struct Weights {
  Eigen::MatrixXd values, known_to;
};

// The shortest formulas that give these weights. None, if so many were tried that one would by chance.
std::vector<std::string> formulas(const Weights& weights, const Dump& dump);

}  // namespace weft::verify
