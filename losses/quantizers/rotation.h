#pragma once
// The rotation trick (Fifty et al., 2024): a gradient at a code comes back to the token rotated and rescaled as the
// code is seen from the token, instead of unchanged.
#include "engine/tape.h"

namespace weft {

// Each row of x, rotated to the direction of q's and brought to its length: (|q| / |x|) R x, with R and the lengths
// taken for constants. R turns x / |x| to q / |q| in the plane of the two. Its values are those of q, up to rounding.
// Lengths below 1e-6 count as 1e-6.
Var rotated_to(const Var& x, const Var& q);

// How a gradient at a code comes to its token: unchanged, or so. The values are those of q, in every bit.
enum class Through : uint8_t { straight, rotation };
Var passed_through(const Var& x, const Var& q, Through through);

}  // namespace weft
