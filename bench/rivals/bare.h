// SPDX-License-Identifier: Apache-2.0
#pragma once
// Direct CUDA calls without Weft, with which the GPU goals are compared. Calls only enqueue work; `wait` synchronizes.
#include <cstddef>
#include <cstdint>

#include "weft/engine/tensor/dtype.h"

namespace weft::bench::bare {

bool present();                                                              // whether this build has CUDA
void matmul(DType dtype, int64_t n, const void* a, const void* b, void* c);  // n x n each, no TF32
void copy(void* to, const void* from, size_t bytes);
void wait();

}  // namespace weft::bench::bare
