// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "tools/weft/verdict/scale_causes.h"

namespace weft::verify {

// Mistakes that explain a gradient by the terms of the objective: one or two of them count by some factor, the others
// as they should, in the gradients of all parameters.
Causes causes_of_terms(const MeasuredParameter& of, const std::vector<MeasuredParameter>& all, const Dump& dump);

}  // namespace weft::verify
