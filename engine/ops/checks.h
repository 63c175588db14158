#pragma once
// The questions most ops ask of their inputs before anything else.
#include "engine/op.h"
#include "engine/tape.h"

namespace weft {

inline void given(const Op& op, const Var& x) { require(x.defined(), op.name, ": the input is empty"); }
inline void floating(const Op& op, const Var& x) {
  require(x.defined() && is_floating(x.dtype()), op.name, ": a floating tensor is needed, not ", x.dtype());
}
inline void on_one_device(const Op& op, Device a, Device b) {
  require(a == b, op.name, ": operands are on ", a, " and ", b);
}
inline void same(const Op& op, const Var& a, const Var& b) {
  require(a.shape() == b.shape() && a.dtype() == b.dtype(), op.name, ": operands differ, ", a.dtype(), " ", a.shape(),
          " and ", b.dtype(), " ", b.shape());
  on_one_device(op, a.device(), b.device());
}

// Looking at indices on a card would stop its queue, so there the range is the caller's promise.
inline void within(const std::string& op, const Tensor& indices, int64_t limit, const char* what) {
  require(indices.dtype() == DType::i64, op, ": ", what, " must be i64, not ", indices.dtype());
  if (indices.device() != Device::cpu) return;
  const int64_t* at = indices.data<int64_t>();
  for (int64_t i = 0; i < indices.size(); ++i)
    require(at[i] >= 0 && at[i] < limit, op, ": ", what, " ", at[i], " at position ", i, " is not in 0..", limit - 1);
}

}  // namespace weft
