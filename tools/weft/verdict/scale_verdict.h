// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "tools/weft/verdict/verdict.h"

namespace weft::verify {

// Whether the gradients of any model are those of its objective, by differences of the objective: one verdict for each
// parameter that was moved.
std::vector<Verdict> scale_verdicts(const Dump& dump);

}  // namespace weft::verify
