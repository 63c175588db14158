// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which reductions a communication library may do for Weft.
#include "weft/collectives/call.h"

namespace weft {

// Whether the reduction of MPI or NCCL differs from Weft's only by its order. The maximum or minimum of floating-point
// numbers differs in more: Weft propagates NaN, the libraries lose it, or even give different results on different
// ranks. A mean is reduced as a sum, which the caller scales.
inline bool library_reduces(const Call& call) {
  const bool extreme = call.op == ReduceOp::maximum || call.op == ReduceOp::minimum;
  return !extreme || !is_floating(call.dtype);
}

}  // namespace weft
