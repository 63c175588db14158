// SPDX-License-Identifier: Apache-2.0
#pragma once
// The checks that most ops make of their inputs.
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

// Checks that all indices are in [0, limit). On a card the caller must guarantee it, because reading the indices would
// wait for the card's queue.
inline void check_in_range(const std::string& op, const Tensor& indices, int64_t limit, const char* what) {
  require(indices.dtype() == DType::i64, op, ": ", what, " must be i64, not ", indices.dtype());
  if (indices.device() != Device::cpu) return;
  const int64_t* at = indices.data<int64_t>();
  for (int64_t i = 0; i < indices.size(); ++i)
    require(at[i] >= 0 && at[i] < limit, op, ": ", what, " ", at[i], " at position ", i, " is not in 0..", limit - 1);
}

}  // namespace weft
