// SPDX-License-Identifier: Apache-2.0
#pragma once
// The part of cuBLAS that Weft calls, on the emulated card. Matrices are column-major, as in cuBLAS.
#include <cuda_runtime_api.h>

#include <cstdint>

#define CUBLAS_VER_MAJOR 0  // the emulated library is libcublas.so.0

struct weft_emulated_blas;
using cublasHandle_t = weft_emulated_blas*;

enum cublasStatus_t {
  CUBLAS_STATUS_SUCCESS = 0,
  CUBLAS_STATUS_NOT_INITIALIZED = 1,
  CUBLAS_STATUS_ALLOC_FAILED = 3,
  CUBLAS_STATUS_INVALID_VALUE = 7,
  CUBLAS_STATUS_EXECUTION_FAILED = 13,
  CUBLAS_STATUS_NOT_SUPPORTED = 15,
};
enum cublasOperation_t { CUBLAS_OP_N, CUBLAS_OP_T };
enum cublasMath_t { CUBLAS_DEFAULT_MATH = 0, CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION = 16 };
enum cublasPointerMode_t { CUBLAS_POINTER_MODE_HOST, CUBLAS_POINTER_MODE_DEVICE };
enum cublasComputeType_t { CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F_FAST_TF32, CUBLAS_COMPUTE_64F };
enum cublasGemmAlgo_t { CUBLAS_GEMM_DEFAULT };
enum cudaDataType_t { CUDA_R_32F, CUDA_R_64F, CUDA_R_16BF, CUDA_R_16F };

#define cublasCreate cublasCreate_v2
#define cublasSetStream cublasSetStream_v2
#define cublasSetWorkspace cublasSetWorkspace_v2
#define cublasSetPointerMode cublasSetPointerMode_v2

extern "C" {
cublasStatus_t cublasCreate(cublasHandle_t* handle);
cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream);
cublasStatus_t cublasSetWorkspace(cublasHandle_t handle, void* workspace, size_t bytes);
cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode);
cublasStatus_t cublasSetPointerMode(cublasHandle_t handle, cublasPointerMode_t mode);
const char* cublasGetStatusString(cublasStatus_t status);
cublasStatus_t cublasGemmEx_64(cublasHandle_t handle, cublasOperation_t operation_a, cublasOperation_t operation_b,
                               int64_t m, int64_t n, int64_t k, const void* alpha, const void* a, cudaDataType_t type_a,
                               int64_t lda, const void* b, cudaDataType_t type_b, int64_t ldb, const void* beta,
                               void* c, cudaDataType_t type_c, int64_t ldc, cublasComputeType_t compute,
                               cublasGemmAlgo_t algorithm);
cublasStatus_t cublasGemmStridedBatchedEx_64(cublasHandle_t handle, cublasOperation_t operation_a,
                                             cublasOperation_t operation_b, int64_t m, int64_t n, int64_t k,
                                             const void* alpha, const void* a, cudaDataType_t type_a, int64_t lda,
                                             int64_t stride_a, const void* b, cudaDataType_t type_b, int64_t ldb,
                                             int64_t stride_b, const void* beta, void* c, cudaDataType_t type_c,
                                             int64_t ldc, int64_t stride_c, int64_t count, cublasComputeType_t compute,
                                             cublasGemmAlgo_t algorithm);
}
