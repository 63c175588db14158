// SPDX-License-Identifier: Apache-2.0
#pragma once
// cublasLt, the part of cuBLAS that adds a bias to a product, and comes with it. Loaded by the first such product.
#include <cublasLt.h>

#include <string>

namespace weft::cuda {

// The functions of cublasLt that Weft calls. The library is never unloaded.
struct CublasLt {
  explicit CublasLt(const std::string& file);

  decltype(&cublasLtMatmulDescCreate) create_product;
  decltype(&cublasLtMatmulDescSetAttribute) set_product;
  decltype(&cublasLtMatrixLayoutCreate) create_layout;
  decltype(&cublasLtMatmulPreferenceCreate) create_preference;
  decltype(&cublasLtMatmulPreferenceSetAttribute) set_preference;
  decltype(&cublasLtMatmulPreferenceDestroy) destroy_preference;
  decltype(&cublasLtMatmulAlgoGetHeuristic) find_algorithms;
  decltype(&cublasLtMatmul) multiply;
};

// The version that Weft was compiled for.
const CublasLt& cublas_lt();

}  // namespace weft::cuda
