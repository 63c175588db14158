// SPDX-License-Identifier: Apache-2.0
#pragma once
// Sums and other reductions, over all elements (to a scalar) or along one axis, which is removed; and their adjoints.
#include "weft/engine/tape/tape.h"

namespace weft {

Var sum(const Var& x);
Var sum(const Var& x, int axis);
Var sum_outside(const Var& x, int axis);            // over all axes but this one; gives a vector
Var repeat(const Var& x, int axis, int64_t count);  // a new axis of equal slices; the adjoint of sum along it
Var mean(const Var& x);
Var mean(const Var& x, int axis);

// Equal extremes share the gradient equally. If any element is NaN, the result is NaN.
Var max(const Var& x, int axis);
Var min(const Var& x, int axis);
Var max(const Var& x);
Var min(const Var& x);
Var prod(const Var& x, int axis);  // exact for any number of zeros
Var prod(const Var& x);

Var log_sum_exp(const Var& x, int axis = -1);
Var variance(const Var& x, int axis, int64_t lost_degrees = 0);  // lost_degrees 1 gives the unbiased estimate
Var norm(const Var& x);                                          // the 2-norm; its gradient at zero is zero
Var norm(const Var& x, int axis);
Var cumulative_sum(const Var& x, int axis, bool reverse = false);

// Indices, as i64, without a gradient: of the first of equal extremes, or of the first NaN if there is one.
Tensor argmax(const Tensor& x, int axis);
Tensor argmin(const Tensor& x, int axis);

// The k largest (or smallest) elements along an axis, best first, equal ones in their original order. The axis of the
// result has extent k.
struct TopK {
  Var values;
  Var indices;
};
TopK top_k(const Var& x, int64_t k, int axis = -1, bool largest = true);
TopK sort(const Var& x, int axis = -1, bool descending = false);

}  // namespace weft
