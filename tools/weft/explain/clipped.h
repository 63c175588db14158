// SPDX-License-Identifier: Apache-2.0
#pragma once
// Gradients of ranks that were longer than others have been shortened to one length.
#include <optional>

#include "tools/weft/explain/formulas.h"
#include "tools/weft/explain/given.h"

namespace weft::verify {

inline const char* const clipping_repair = "reduce first, and clip by the norm of what was reduced";

// By which norm, and to which length: "clipped to 0.3 before the reduction". None, if a single rank was shortened,
// which any weight would do.
std::optional<std::string> clipped_before(const Given& given, const std::vector<Weights>& of_ranks);

}  // namespace weft::verify
