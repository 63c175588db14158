// SPDX-License-Identifier: Apache-2.0
#pragma once
// The precision of losses: bf16 features are cast to f32 before any statistic or loss is computed. Features of f32 and
// f64 keep their type.
#include "weft/engine/ops/elementwise.h"

namespace weft {

inline Var precise(const Var& x) { return x.dtype() == DType::bf16 ? cast(x, DType::f32) : x; }

}  // namespace weft
