// SPDX-License-Identifier: Apache-2.0
#pragma once
// Mistakes without a name: by how much the gradient of each rank and micro-batch counts in what the reducer made of
// them, fitted to the dump itself.
#include <optional>

#include "tools/weft/verdict/verdict.h"

namespace weft::verify {

using Weights = Eigen::MatrixXd;  // by rank and micro-batch, as multiples of what they should be

// "the gradients of ranks 0 to 1 weigh 1 and 1/2 times what they should"
std::string weights_text(const Weights& weights);
// By which the gradients of all ranks are made, on each of them.
Described described(const std::vector<Weights>& of_ranks, double error);

// In words, if weights explain the gradients of all ranks to rounding, and no others would. Only of gradients that all
// ranks have whole.
std::optional<Described> explained_by_weights(const ParameterEvidence& parameter, const Dump& dump);

}  // namespace weft::verify
