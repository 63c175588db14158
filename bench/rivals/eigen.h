// SPDX-License-Identifier: Apache-2.0
#pragma once
// The operations of rivals.h with Eigen. They have a source file of their own, since Eigen's headers compile slowly.
#include <cstdint>

namespace weft::bench {

void eigen_gemm(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k, const float* a, const float* b,
                float* c);
void eigen_exp(int64_t n, const float* x, float* y);
void eigen_tanh(int64_t n, const float* x, float* y);

}  // namespace weft::bench
