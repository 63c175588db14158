// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "weft/engine/kernels/scalar_ops.h"

namespace weft::cpu {

// y[i] = op(x[i]); y may be x. For float and double.
template <class T> void apply(Unary op, Scalars scalars, int64_t n, const T* x, T* y);

}  // namespace weft::cpu
