// SPDX-License-Identifier: Apache-2.0
// The part of cuBLAS that Weft calls, for a card that does nothing.
#include <cublas_v2.h>

#undef cublasSetWorkspace

extern "C" {

cublasStatus_t cublasCreate_v2(cublasHandle_t* handle) {
  static int something;
  return *handle = reinterpret_cast<cublasHandle_t>(&something), CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasDestroy_v2(cublasHandle_t) { return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t) {
  return handle ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_INITIALIZED;
}
cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t, void*, size_t) { return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasSetMathMode(cublasHandle_t, cublasMath_t) { return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasSetPointerMode_v2(cublasHandle_t, cublasPointerMode_t) { return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasGemmEx_64(cublasHandle_t, cublasOperation_t, cublasOperation_t, int64_t, int64_t, int64_t,
                               const void*, const void*, cudaDataType, int64_t, const void*, cudaDataType, int64_t,
                               const void*, void*, cudaDataType, int64_t, cublasComputeType_t, cublasGemmAlgo_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasGemmStridedBatchedEx_64(cublasHandle_t, cublasOperation_t, cublasOperation_t, int64_t, int64_t,
                                             int64_t, const void*, const void*, cudaDataType, int64_t, long long int,
                                             const void*, cudaDataType, int64_t, long long int, const void*, void*,
                                             cudaDataType, int64_t, long long int, int64_t, cublasComputeType_t,
                                             cublasGemmAlgo_t) {
  return CUBLAS_STATUS_SUCCESS;
}
const char* cublasGetStatusString(cublasStatus_t) { return "an error of the null card"; }
}
