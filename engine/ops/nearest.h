// SPDX-License-Identifier: Apache-2.0
#pragma once
// The search for the nearest code, for quantizers.
#include "weft/engine/tensor/tensor.h"

namespace weft {

// For every row of x (m, d), the index of the nearest row of codes (n, d), the first of equally near ones: i64 (m).
// Squared distances are computed in f64 for all floating types, so the result is that of exact search, and does not
// depend on the device or on the other rows. A matrix product, which is never in memory as a whole, gives scores that
// rule out most codes, and distances are computed only for the others. A code whose distance is NaN is never the
// nearest; if all are, the result is 0.
Tensor nearest_rows(const Tensor& x, const Tensor& codes);

}  // namespace weft
