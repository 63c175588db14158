// SPDX-License-Identifier: Apache-2.0
#pragma once
// Ops that rearrange elements without arithmetic, for every dtype. The adjoint of each is another of them: slice and
// pad, concat and slice, flip and flip. A negative axis counts from the last.
#include <span>

#include "weft/engine/tape/tape.h"

namespace weft {

Var reshape(const Var& x, const Shape& shape);  // a view
Var flatten(const Var& x, int from = 1);        // merges this axis and all after it; a view

Var slice(const Var& x, int axis, int64_t begin, int64_t end);  // begin..end-1; a view along axis 0
Var pad(const Var& x, int axis, int64_t before, int64_t after, double value = 0);

Var concat(std::span<const Var> parts, int axis);
Var stack(std::span<const Var> parts, int axis);  // along a new axis
inline Var concat(std::initializer_list<Var> parts, int axis) { return concat({parts.begin(), parts.size()}, axis); }
inline Var stack(std::initializer_list<Var> parts, int axis) { return stack({parts.begin(), parts.size()}, axis); }

Var permute(const Var& x, const Shape& order);  // axis i of the result is axis order[i] of x
Var swap_axes(const Var& x, int a, int b);
Var transpose(const Var& x);  // of a matrix
Var flip(const Var& x, int axis);

}  // namespace weft
