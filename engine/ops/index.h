#pragma once
// Ops that choose elements by number. Indices are i64 tensors and carry no gradient; what they point to does. On the
// CPU they are checked; on a card a check would stop the queue, so there an index out of range is undefined.
#include "engine/tape.h"

namespace weft {

// Rows are what axis 0 of x counts. y[i] = x[indices[i]], for indices of any shape: (n, d) by (b, t) gives (b, t, d).
Var gather_rows(const Var& x, const Var& indices);
// Its adjoint: y has `rows` rows, and row j is the sum of the x[i] whose index is j.
Var scatter_add_rows(const Var& x, const Var& indices, int64_t rows);
inline Var embedding(const Var& table, const Var& indices) { return gather_rows(table, indices); }

// y[.., j, ..] = x[.., indices[.., j, ..], ..]: chooses along one axis separately for every position of the others.
Var take_along(const Var& x, const Var& indices, int axis);
// Its adjoint: adds into zeros that have `extent` along the axis.
Var put_along(const Var& x, const Var& indices, int axis, int64_t extent);

Var one_hot(const Var& indices, int64_t classes, DType dtype = DType::f32);  // a new last axis

}  // namespace weft
