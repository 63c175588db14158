// SPDX-License-Identifier: Apache-2.0
#include "weft/engine/kernels/cuda/blas.h"

#include "weft/engine/kernels/cuda/library.h"
#include "weft/engine/tensor/error.h"

namespace weft::cuda {

Cublas::Cublas(const std::string& file) {
  const Library library(file, "cuBLAS 12 or later");
  library.find(create, "cublasCreate_v2");
  library.find(set_stream, "cublasSetStream_v2");
  library.find(set_workspace, "cublasSetWorkspace_v2");
  library.find(set_math_mode, "cublasSetMathMode");
  library.find(set_pointer_mode, "cublasSetPointerMode_v2");
  library.find(gemm, "cublasGemmEx_64");
  library.find(gemm_strided_batched, "cublasGemmStridedBatchedEx_64");
  library.find(status_text, "cublasGetStatusString");
}

const Cublas& cublas() {
  static const Cublas loaded("libcublas.so." + text(CUBLAS_VER_MAJOR));
  return loaded;
}

void check(cublasStatus_t code, const char* call) {
  if (code != CUBLAS_STATUS_SUCCESS) fail({"cuda: ", call, " failed: ", cublas().status_text(code)});
}

}  // namespace weft::cuda
