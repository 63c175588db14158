// SPDX-License-Identifier: Apache-2.0
#pragma once
// One product of matrices, or several, by cuBLAS.
#include "weft/engine/kernels/backend.h"
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

  cublasOperation_t operation() const { return transpose ? CUBLAS_OP_T : CUBLAS_OP_N; }
  int64_t width_of(int64_t rows, int64_t columns) const { return width > 0 ? width : transpose ? rows : columns; }
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
  // Returns what is left of the epilogue, after a bias has been added if that takes no launch of its own. An activation
  // is left with its bias: NVIDIA documents relu as max(x, 0) without saying that NaN stays.
  template <class T> Epilogue run(const Operand<T>& a, const Operand<T>& b, const Epilogue& epilogue, T* y) const {
    if (epilogue.bias && epilogue.activation.identity() && batch == 1 && run_biased(a, b, epilogue.bias->data<T>(), y))
      return {};
    run(a, b, y);
    return epilogue;
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
  // y = op(a) op(b) + bias, or false and nothing.
  template <class T> bool run_biased(const Operand<T>& a, const Operand<T>& b, const T* bias, T* y) const {
    const Compute<T> one = 1, zero = 0;
    const BiasedProduct product{.operation_a = b.operation(),
                                .operation_b = a.operation(),
                                .m = n,
                                .n = m,
                                .k = k,
                                .lda = b.width_of(k, n),
                                .ldb = a.width_of(m, k),
                                .type = blas_type<T>,
                                .factor_type = blas_type<Compute<T>>,
                                .compute = compute<T>()};
    return product.run(b.data, a.data, bias, y, &one, &zero);
  }

  template <class X, class Y>
  void run(const Operand<X>& a, const Operand<X>& b, const Compute<X>* factors, Y* y) const {
    const cublasOperation_t left = b.operation(), right = a.operation();
    const int64_t width_a = a.width_of(m, k), width_b = b.width_of(k, n);
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
