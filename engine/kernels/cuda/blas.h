// SPDX-License-Identifier: Apache-2.0
#pragma once
// cuBLAS, loaded by the first product on a card. A program that links it starts a tenth of a second later and 200 MB
// larger, even without a card.
#include <cublas_v2.h>

#include <string>

namespace weft::cuda {

// The functions of cuBLAS that Weft calls. The library is never unloaded.
struct Cublas {
  explicit Cublas(const std::string& file);

  decltype(&cublasCreate) create;
  decltype(&cublasSetStream) set_stream;
  decltype(&cublasSetWorkspace) set_workspace;
  decltype(&cublasSetMathMode) set_math_mode;
  decltype(&cublasSetPointerMode) set_pointer_mode;
  decltype(&cublasGemmEx_64) gemm;
  decltype(&cublasGemmStridedBatchedEx_64) gemm_strided_batched;
  decltype(&cublasGetStatusString) status_text;
};

// The version that Weft was compiled for.
const Cublas& cublas();

void check(cublasStatus_t code, const char* call);

}  // namespace weft::cuda
