// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime_api.h>

#include "bench/rivals/bare.h"
#include "weft/engine/kernels/cuda/blas.h"

namespace weft::bench::bare {
namespace {

void check(int status, const char* call) { require(status == 0, call, ": status ", status); }

cublasHandle_t handle() {
  static const cublasHandle_t made = [] {
    cublasHandle_t h;
    check(cuda::cublas().create(&h), "cublasCreate");
    return h;
  }();
  return made;
}

}  // namespace

bool present() { return true; }

// Column-major: the transpose of c = a b is b^T a^T.
void matmul(DType dtype, int64_t n, const void* a, const void* b, void* c) {
  const cudaDataType_t type = dtype == DType::bf16 ? CUDA_R_16BF : CUDA_R_32F;
  const float one = 1, zero = 0;
  check(cuda::cublas().gemm(handle(), CUBLAS_OP_N, CUBLAS_OP_N, n, n, n, &one, b, type, n, a, type, n, &zero, c, type,
                            n, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
        "cublasGemmEx");
}

void copy(void* to, const void* from, size_t bytes) {
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice), "cudaMemcpyAsync");
}

void wait() { check(cudaDeviceSynchronize(), "cudaDeviceSynchronize"); }

}  // namespace weft::bench::bare
