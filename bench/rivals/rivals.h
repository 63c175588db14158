// SPDX-License-Identifier: Apache-2.0
#pragma once
// The same operations by other libraries. Each library has a source file of its own, so that the rest of the program
// does not include its headers.
#include <cstdint>

namespace weft::bench {

// c (m x n) = op(a) op(b), row-major, one thread.
using Gemm = void (*)(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k, const float* a,
                      const float* b, float* c);
using Elementwise = void (*)(int64_t n, const float* x, float* y);

Gemm onednn_gemm();  // null if this build has no oneDNN

}  // namespace weft::bench
