// SPDX-License-Identifier: Apache-2.0
#pragma once
// One step of a reduction that was taken in a lower precision than the rest: gradients of ranks before the sum, those
// of micro-batches as they are accumulated, or what is stored in the end. What it makes of them is known to the last
// bit.
#include <optional>

#include "tools/weft/verdict/verdict.h"

namespace weft::verify {

// "in bf16, where each rank's gradient is sent"
std::optional<Explained> rounded_once(const ParameterEvidence& parameter, const Dump& dump);

// Whether all is as if it had been stored in a lower precision, and in which. `off_by`: how much the truth may be off,
// relatively.
std::optional<std::string> stored_in_lower(const std::vector<Matrix>& made, const std::vector<Matrix>& truth,
                                           double epsilon, double off_by);

}  // namespace weft::verify
