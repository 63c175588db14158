// SPDX-License-Identifier: Apache-2.0
#pragma once
// Ops that select elements by index. Indices are i64 tensors and have no gradient. One out of range is an error: on the
// CPU at once, on a card at the next wait for it (Tensor::item, a copy to the host, Backend::synchronize). What is
// computed with it until then is not to be used; nothing is read or written out of bounds.
#include "weft/engine/tape/tape.h"

namespace weft {

// y[i] = x[indices[i]] along axis 0 of x, for indices of any shape: (n, d) indexed by (b, t) gives (b, t, d).
Var gather_rows(const Var& x, const Var& indices);
// Its adjoint: y has `rows` rows, and row j is the sum of the x[i] whose index is j.
Var scatter_add_rows(const Var& x, const Var& indices, int64_t rows);
inline Var embedding(const Var& table, const Var& indices) { return gather_rows(table, indices); }

// y[.., j, ..] = x[.., indices[.., j, ..], ..]: selects along one axis, separately for every index of the other axes.
Var take_along(const Var& x, const Var& indices, int axis);
// Its adjoint: adds the elements to zeros with this extent along the axis.
Var put_along(const Var& x, const Var& indices, int axis, int64_t extent);

Var one_hot(const Var& indices, int64_t classes, DType dtype = DType::f32);  // a new last axis

}  // namespace weft
