#pragma once
// Statistics and losses of bf16 features are computed in f32.
#include "engine/ops/elementwise.h"

namespace weft {

inline Var precise(const Var& x) { return x.dtype() == DType::bf16 ? cast(x, DType::f32) : x; }

}  // namespace weft
