// SPDX-License-Identifier: Apache-2.0
#pragma once
// The rotation trick (Fifty et al., 2024): the gradient at a code reaches the token through the rotation and scaling
// that map the token to the code, instead of unchanged.
#include "weft/engine/tape/tape.h"

namespace weft {

// Each row of x, rotated and scaled to the corresponding row of q: (|q| / |x|) R x. R rotates x / |x| to q / |q| in the
// plane of the two; R and the lengths are constants without a gradient. The values equal q up to rounding. Lengths
// below 1e-6 count as 1e-6.
Var rotated_to(const Var& x, const Var& q);

// How the gradient at a code reaches its token: unchanged, or by the rotation. The values are exactly those of q.
enum class Through : uint8_t { straight, rotation };
Var passed_through(const Var& x, const Var& q, Through through);

}  // namespace weft
