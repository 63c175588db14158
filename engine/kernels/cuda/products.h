// SPDX-License-Identifier: Apache-2.0
#pragma once
// Products of matrices by cuBLAS, for other kernels. Of bf16 values and of halves they are exact, so y is f32.
#include "weft/engine/tensor/tensor.h"

namespace weft::cuda {

// y = factors[0] a b^T + factors[1] y. The factors are on the card.
void products_of_rows(const Tensor& a, const Tensor& b, const Tensor& factors, bool tf32, Tensor& y);
// The same for rows of `width` halves.
void products_of_rows(const Half* a, const Half* b, int64_t width, const Tensor& factors, Tensor& y);
// y = op(a) b, or y += op(a) b, for the first columns of b and y only.
void product_of_columns(const Tensor& a, bool transpose_a, const Tensor& b, int64_t columns, bool accumulate, bool tf32,
                        Tensor& y);

}  // namespace weft::cuda
