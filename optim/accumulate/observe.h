// SPDX-License-Identifier: Apache-2.0
#pragma once
// An identity op that reports the cotangent of a value in backward. cached_backward() uses it to get the cotangents of
// features.
#include <functional>

#include "weft/engine/tape/var.h"

namespace weft {

// Returns x, and calls `callback` with its cotangent in every backward, even if the cotangent is zero: collectives in a
// micro-batch may wait for this rank although its loss does not depend on that micro-batch.
Var observe(const Var& x, std::function<void(const Tensor& cotangent)> callback);

}  // namespace weft
