#pragma once
// CUDA's own calls with nothing of Weft between: what the GPU goals are held against. Calls enqueue; `wait` waits.
#include <cstddef>
#include <cstdint>

#include "engine/dtype.h"

namespace weft::bench::bare {

bool present();                                                              // whether this build has CUDA
void matmul(DType dtype, int64_t n, const void* a, const void* b, void* c);  // n x n each, no TF32
void copy(void* to, const void* from, size_t bytes);
void wait();

}  // namespace weft::bench::bare
