#pragma once
// cuBLAS, loaded when the first product on a card asks for it: a program that is linked with it starts a tenth of a
// second later and 200 MB larger, whether it has a card or not.
#include <cublas_v2.h>

#include <string>

namespace weft::cuda {

// What Weft calls of cuBLAS. The library stays loaded for good.
struct Cublas {
  explicit Cublas(const std::string& library);

  decltype(&cublasCreate) create;
  decltype(&cublasSetStream) set_stream;
  decltype(&cublasSetWorkspace) set_workspace;
  decltype(&cublasSetMathMode) set_math_mode;
  decltype(&cublasGemmEx_64) gemm;
  decltype(&cublasGemmStridedBatchedEx_64) gemm_strided_batched;
  decltype(&cublasGetStatusString) status_text;
};

// The version that Weft was compiled for.
const Cublas& cublas();

void check(cublasStatus_t code, const char* call);

}  // namespace weft::cuda
