// SPDX-License-Identifier: Apache-2.0
// The part of cuBLAS that Weft calls, as a separate library that is loaded with the first product, like the real one.
#include <cublas_v2.h>

#include <algorithm>

#include "tests/emulated_card/product.h"

using weft::emulated::is_known;
using weft::emulated::operand;
using weft::emulated::Product;

struct weft_emulated_blas {
  cudaStream_t stream = nullptr;  // of the handle's card
  cublasPointerMode_t factors = CUBLAS_POINTER_MODE_HOST;
};

extern "C" {

cublasStatus_t cublasCreate(cublasHandle_t* handle) {
  *handle = new weft_emulated_blas;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream) {
  if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (!stream->is_current()) return CUBLAS_STATUS_EXECUTION_FAILED;
  handle->stream = stream;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetWorkspace(cublasHandle_t, void*, size_t) { return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasSetMathMode(cublasHandle_t, cublasMath_t) { return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasSetPointerMode(cublasHandle_t handle, cublasPointerMode_t mode) {
  handle->factors = mode;
  return CUBLAS_STATUS_SUCCESS;
}

const char* cublasGetStatusString(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS: return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED: return "the library was not initialized";
    case CUBLAS_STATUS_ALLOC_FAILED: return "the resource allocation failed";
    case CUBLAS_STATUS_INVALID_VALUE: return "an unsupported value or parameter was passed to the function";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "the GPU program failed to execute: another card is current than the handle's";
    case CUBLAS_STATUS_NOT_SUPPORTED: return "the functionality requested is not supported";
  }
  return "unknown";
}

cublasStatus_t cublasGemmStridedBatchedEx_64(cublasHandle_t handle, cublasOperation_t operation_a,
                                             cublasOperation_t operation_b, int64_t m, int64_t n, int64_t k,
                                             const void* alpha, const void* a, cudaDataType_t type_a, int64_t lda,
                                             int64_t stride_a, const void* b, cudaDataType_t type_b, int64_t ldb,
                                             int64_t stride_b, const void* beta, void* c, cudaDataType_t type_c,
                                             int64_t ldc, int64_t stride_c, int64_t count, cublasComputeType_t compute,
                                             cublasGemmAlgo_t) {
  const bool transpose_a = operation_a == CUBLAS_OP_T, transpose_b = operation_b == CUBLAS_OP_T;
  const bool wide = compute == CUBLAS_COMPUTE_64F;
  if (!handle || !handle->stream) return CUBLAS_STATUS_NOT_INITIALIZED;
  const cudaStream_t stream = handle->stream;
  if (!stream->is_current()) return CUBLAS_STATUS_EXECUTION_FAILED;
  if (m < 0 || n < 0 || k < 0 || count < 0 || lda < std::max<int64_t>(1, transpose_a ? k : m) ||
      ldb < std::max<int64_t>(1, transpose_b ? n : k) || ldc < std::max<int64_t>(1, m) ||
      (count > 1 && stride_c < ldc * (n - 1) + m))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (type_a != type_b || !is_known(compute, type_a, type_c)) return CUBLAS_STATUS_NOT_SUPPORTED;
  const Product product{m,
                        n,
                        k,
                        count,
                        operand(a, type_a, operation_a, lda, stride_a),
                        operand(b, type_b, operation_b, ldb, stride_b),
                        c,
                        type_c,
                        ldc,
                        stride_c,
                        compute == CUBLAS_COMPUTE_32F_FAST_TF32};
  const auto enqueue = [&]<class C>(const C* x, const C* y) {
    if (handle->factors == CUBLAS_POINTER_MODE_DEVICE)
      stream->enqueue_product([product, stream, x, y] {
        for (const C* const factor : {x, y}) stream->access(factor, sizeof *factor, false, "cuBLAS");
        product.access(stream);
        product.run(*x, *y);
      });
    else  // they are read now
      stream->enqueue_product([product, stream, x = *x, y = *y] {
        product.access(stream);
        product.run(x, y);
      });
  };
  if (wide)
    enqueue(static_cast<const double*>(alpha), static_cast<const double*>(beta));
  else
    enqueue(static_cast<const float*>(alpha), static_cast<const float*>(beta));
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGemmEx_64(cublasHandle_t handle, cublasOperation_t operation_a, cublasOperation_t operation_b,
                               int64_t m, int64_t n, int64_t k, const void* alpha, const void* a, cudaDataType_t type_a,
                               int64_t lda, const void* b, cudaDataType_t type_b, int64_t ldb, const void* beta,
                               void* c, cudaDataType_t type_c, int64_t ldc, cublasComputeType_t compute,
                               cublasGemmAlgo_t algorithm) {
  return cublasGemmStridedBatchedEx_64(handle, operation_a, operation_b, m, n, k, alpha, a, type_a, lda, 0, b, type_b,
                                       ldb, 0, beta, c, type_c, ldc, 0, 1, compute, algorithm);
}
}
