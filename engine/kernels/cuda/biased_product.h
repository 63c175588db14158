// SPDX-License-Identifier: Apache-2.0
#pragma once
// A product of matrices plus a bias in one launch, by cublasLt.
#include <cublasLt.h>

#include <compare>
#include <cstdint>

namespace weft::cuda {

// d = op(a) op(b) + bias, column-major; the bias has a value for each row of d. These members are all that the choice
// of an algorithm depends on.
struct BiasedProduct {
  cublasOperation_t operation_a, operation_b;
  int64_t m, n, k, lda, ldb;
  cudaDataType_t type, factor_type;
  cublasComputeType_t compute;

  auto operator<=>(const BiasedProduct&) const = default;

  // False if cublasLt has no algorithm for it, or memory is less aligned than tensor cores need it; nothing has been
  // done then. `one` and `zero` are of the factors' type.
  bool run(const void* a, const void* b, const void* bias, void* d, const void* one, const void* zero) const;
};

// What cublasLt is asked for a BiasedProduct, and its answer. All are handles of the host's memory.
struct BiasedAlgorithm {
  cublasLtMatmulDesc_t product = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, d = nullptr;
  bool found = false;
  cublasLtMatmulAlgo_t algorithm = {};
};

}  // namespace weft::cuda
