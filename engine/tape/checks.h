// SPDX-License-Identifier: Apache-2.0
#pragma once
// The checks that most ops make of their inputs.
#include "weft/engine/kernels/backend.h"
#include "weft/engine/tape/op.h"
#include "weft/engine/tape/tape.h"

namespace weft {

inline void check_defined(const Op& op, const Var& x) { require(x.defined(), op.name, ": the input is empty"); }
inline void check_floating(const Op& op, const Var& x) {
  require(x.defined() && is_floating(x.dtype()), op.name, ": a floating tensor is needed, not ", x.dtype());
}
inline void check_one_device(const Op& op, Device a, Device b) {
  require(a == b, op.name, ": operands are on ", a, " and ", b);
}
inline void check_same(const Op& op, const Var& a, const Var& b) {
  require(a.shape() == b.shape() && a.dtype() == b.dtype(), op.name, ": operands differ, ", a.dtype(), " ", a.shape(),
          " and ", b.dtype(), " ", b.shape());
  check_one_device(op, a.device(), b.device());
}

// Checks that all indices are in [0, limit), for functions that do not give them to a kernel.
inline void check_in_range(IndexNames names, const Tensor& indices, int64_t limit) {
  backend(indices.device()).check_indices(Indices(names, indices, limit));
}

}  // namespace weft
