// SPDX-License-Identifier: Apache-2.0
#pragma once
// What cuBLAS and cublasLt do on a stream: a product of matrices, column-major.
#include <cublas_v2.h>

#include "tests/emulated_card/stream.h"

namespace weft::emulated {

// Whether Weft asks for such products, of all that cuBLAS supports.
bool is_known(cublasComputeType_t compute, cudaDataType_t type_ab, cudaDataType_t type_c);

struct Matrix {
  const void* data;
  cudaDataType_t type;
  int64_t stride_row, stride_column, step = 0;  // step: to the next matrix of a batch
};
// op(x) of a matrix x with this leading dimension.
Matrix operand(const void* data, cudaDataType_t type, cublasOperation_t operation, int64_t ld, int64_t step = 0);

// c = alpha a b + beta c, plus a value for each row if there is a bias, rounded once.
struct Product {
  int64_t m, n, k, count;
  Matrix a, b;
  void* c;
  cudaDataType_t type_c;
  int64_t ldc, stride_c;
  bool tf32;
  const void* bias = nullptr;  // of type_c

  Matrix biases() const { return {bias, type_c, 1, 0}; }
  void access(cudaStream_t stream) const;
  template <class C> void run(C alpha, C beta) const;
};

}  // namespace weft::emulated
