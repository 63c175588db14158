#pragma once
// Search for the nearest code, as quantizers do it.
#include "engine/tensor.h"

namespace weft {

// For every row of x (m, d) the number of the nearest row of codes (n, d), the first of equally near ones: i64 (m).
// Squared distances are those of f64 arithmetic, whatever the floating type: the result is that of exact search, and
// the same on every device and in whatever batch a row comes. They are computed only for codes that the scores of a
// matrix product, which are never in memory all at once, leave in doubt. A code at a distance that is not a number is
// nobody's nearest; where there is no other, the result is 0.
Tensor nearest_rows(const Tensor& x, const Tensor& codes);

}  // namespace weft
