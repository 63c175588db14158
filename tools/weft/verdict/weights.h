// SPDX-License-Identifier: Apache-2.0
#pragma once
// Mistakes without a name: by how much the gradient of each rank and micro-batch counts in what the reducer made of
// them, fitted to the dump itself.
#include <optional>

#include "tools/weft/verdict/verdict.h"

namespace weft::verify {

// In words, if weights explain the gradients of all ranks to rounding, and no others would. Only of gradients that all
// ranks have whole.
std::optional<Described> explained_by_weights(const ParameterEvidence& parameter, const Dump& dump);

}  // namespace weft::verify
