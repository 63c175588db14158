#pragma once
// Which reductions a communication library may do in our place.
#include "collectives/call.h"

namespace weft {

// Whether MPI's and NCCL's own reduction is ours but for the order of its steps. An extreme of floating numbers is not:
// in ours NaN wins, in theirs it is lost, or even another result on another rank. A mean is reduced as the sum that its
// caller scales.
inline bool library_reduces(const Call& call) {
  const bool extreme = call.op == ReduceOp::maximum || call.op == ReduceOp::minimum;
  return !extreme || !is_floating(call.dtype);
}

}  // namespace weft
