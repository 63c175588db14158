#pragma once
// Other libraries' ways to do the same, each in a file of its own: the rest of the program need not see their headers.
#include <cstdint>

namespace weft::bench {

// c (m x n) = op(a) op(b), row-major, one thread.
using Gemm = void (*)(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k, const float* a,
                      const float* b, float* c);
using Elementwise = void (*)(int64_t n, const float* x, float* y);

Gemm onednn_gemm();  // null if this build has no oneDNN

}  // namespace weft::bench
