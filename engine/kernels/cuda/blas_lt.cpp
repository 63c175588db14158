// SPDX-License-Identifier: Apache-2.0
#include "weft/engine/kernels/cuda/blas_lt.h"

#include "weft/engine/kernels/cuda/library.h"
#include "weft/engine/tensor/error.h"

namespace weft::cuda {

CublasLt::CublasLt(const std::string& file) {
  const Library library(file, "cuBLAS 12 or later");
  library.find(create_product, "cublasLtMatmulDescCreate");
  library.find(set_product, "cublasLtMatmulDescSetAttribute");
  library.find(create_layout, "cublasLtMatrixLayoutCreate");
  library.find(create_preference, "cublasLtMatmulPreferenceCreate");
  library.find(set_preference, "cublasLtMatmulPreferenceSetAttribute");
  library.find(destroy_preference, "cublasLtMatmulPreferenceDestroy");
  library.find(find_algorithms, "cublasLtMatmulAlgoGetHeuristic");
  library.find(multiply, "cublasLtMatmul");
}

const CublasLt& cublas_lt() {
  static const CublasLt loaded("libcublasLt.so." + text(CUBLAS_VER_MAJOR));
  return loaded;
}

}  // namespace weft::cuda
