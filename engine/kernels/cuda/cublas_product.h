// SPDX-License-Identifier: Apache-2.0
#pragma once
// One product of matrices, or several, by cuBLAS.
#include "weft/engine/kernels/cuda/context.h"

namespace weft::cuda {

template <class T> constexpr cudaDataType_t blas_type = CUDA_R_32F;
template <> constexpr cudaDataType_t blas_type<double> = CUDA_R_64F;
template <> constexpr cudaDataType_t blas_type<BFloat16> = CUDA_R_16BF;
template <> constexpr cudaDataType_t blas_type<Half> = CUDA_R_16F;

template <class T> struct Operand {
  const T* data;
  bool transpose = false;
  int64_t step = 0;   // from one matrix to the next
  int64_t width = 0;  // of the matrix whose first columns this is; zero if it is a whole one
};

// y (+)= op(a) op(b), row-major, `batch` times. In column-major order a row-major matrix is its transpose, so cuBLAS
// computes y^T = op(b)^T op(a)^T. X is the type of a and b; y may be wider. m, n and k are not zero.
struct Product {
  int64_t m, n, k, batch = 1;
  bool tf32 = false, accumulate = false;
  int64_t width = n;  // of the matrix whose first columns are y

  template <class X, class Y> void run(const Operand<X>& a, const Operand<X>& b, Y* y) const {
    const Compute<X> factors[] = {1, accumulate ? Compute<X>(1) : 0};
    run(a, b, factors, y);
  }
  // y = factors[0] op(a) op(b) + factors[1] y. The factors are on the card.
  template <class X, class Y>
  void run_scaled(const Operand<X>& a, const Operand<X>& b, const Compute<X>* factors, Y* y) const {
    const auto factors_are_on = [](cublasPointerMode_t mode) {
      check(cublas().set_pointer_mode(context().blas(), mode), "cublasSetPointerMode");
    };
    factors_are_on(CUBLAS_POINTER_MODE_DEVICE);
    run(a, b, factors, y);
    factors_are_on(CUBLAS_POINTER_MODE_HOST);
  }

 private:
  template <class X, class Y>
  void run(const Operand<X>& a, const Operand<X>& b, const Compute<X>* factors, Y* y) const {
    const auto operation = [](bool transpose) { return transpose ? CUBLAS_OP_T : CUBLAS_OP_N; };
    const cublasOperation_t left = operation(b.transpose), right = operation(a.transpose);
    const auto width_of = [](const Operand<X>& x, int64_t columns) { return x.width > 0 ? x.width : columns; };
    const int64_t width_a = width_of(a, a.transpose ? m : k), width_b = width_of(b, b.transpose ? k : n);
    if (batch == 1)  // this call may also split k, unlike the batched one
      check(
          cublas().gemm(context().blas(), left, right, n, m, k, factors, b.data, blas_type<X>, width_b, a.data,
                        blas_type<X>, width_a, factors + 1, y, blas_type<Y>, width, compute<X>(), CUBLAS_GEMM_DEFAULT),
          "cublasGemmEx");
    else
      check(cublas().gemm_strided_batched(context().blas(), left, right, n, m, k, factors, b.data, blas_type<X>,
                                          width_b, b.step, a.data, blas_type<X>, width_a, a.step, factors + 1, y,
                                          blas_type<Y>, width, m * n, batch, compute<X>(), CUBLAS_GEMM_DEFAULT),
            "cublasGemmStridedBatchedEx");
  }
  // TF32 is for f32 only. Products of bf16 values and of halves are exact in f32.
  template <class X> cublasComputeType_t compute() const {
    if constexpr (std::is_same_v<X, double>) return CUBLAS_COMPUTE_64F;
    return std::is_same_v<X, float> && tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
  }
};

}  // namespace weft::cuda
