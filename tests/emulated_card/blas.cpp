// SPDX-License-Identifier: Apache-2.0
// The part of cuBLAS that Weft calls, as a separate library that is loaded with the first product, like the real one.
#include <cublas_v2.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <type_traits>
#include <vector>

#include "tests/emulated_card/stream.h"
#include "weft/engine/tensor/dtype.h"

struct weft_emulated_blas {
  cudaStream_t stream = nullptr;  // of the handle's card
  cublasPointerMode_t factors = CUBLAS_POINTER_MODE_HOST;
};

namespace {

using weft::BFloat16;
using weft::Half;

struct Matrix {
  const void* data;
  cudaDataType_t type;
  int64_t stride_row, stride_column, step;  // step: to the next matrix of a batch
};

template <class F> void visit(cudaDataType_t type, const F& run) {
  switch (type) {
    case CUDA_R_32F: return run(float());
    case CUDA_R_64F: return run(double());
    case CUDA_R_16BF: return run(BFloat16());
    case CUDA_R_16F: return run(Half());
  }
}

// The products that Weft asks for, of all that cuBLAS supports.
bool is_known(cublasComputeType_t compute, cudaDataType_t type_ab, cudaDataType_t type_c) {
  switch (compute) {
    case CUBLAS_COMPUTE_32F:
      if (type_ab == CUDA_R_32F || type_ab == CUDA_R_64F) return type_ab == CUDA_R_32F && type_c == CUDA_R_32F;
      return type_c == type_ab || type_c == CUDA_R_32F;
    case CUBLAS_COMPUTE_32F_FAST_TF32: return type_ab == CUDA_R_32F && type_c == CUDA_R_32F;
    case CUBLAS_COMPUTE_64F: return type_ab == CUDA_R_64F && type_c == CUDA_R_64F;
  }
  return false;
}

float to_tf32(float x) { return std::bit_cast<float>((std::bit_cast<uint32_t>(x) + 0x1000u) & ~0x1fffu); }

// One matrix of numbers of type C, column by column with `rows` each.
template <class C>
std::vector<C> values_of(const Matrix& matrix, int64_t number, int64_t rows, int64_t columns, bool tf32) {
  std::vector<C> values(static_cast<size_t>(rows * columns));
  visit(matrix.type, [&]<class T>(T) {
    const T* const first = static_cast<const T*>(matrix.data) + number * matrix.step;
    for (int64_t j = 0; j < columns; ++j)
      for (int64_t i = 0; i < rows; ++i) {
        const T value = first[i * matrix.stride_row + j * matrix.stride_column];
        C wide = static_cast<C>(static_cast<weft::Compute<T>>(value));
        if constexpr (std::is_same_v<C, float>)
          if (tf32) wide = to_tf32(wide);
        values[static_cast<size_t>(j * rows + i)] = wide;
      }
  });
  return values;
}

struct Product {
  int64_t m, n, k, count;
  Matrix a, b;
  void* c;
  cudaDataType_t type_c;
  int64_t ldc, stride_c;
  bool tf32;

  // All memory from the first element of the first matrix to the last of the last one.
  template <class T> static size_t extent(const Matrix& x, int64_t rows, int64_t columns, int64_t count) {
    const int64_t last = (rows - 1) * x.stride_row + (columns - 1) * x.stride_column + (count - 1) * x.step;
    return rows * columns * count == 0 ? 0 : static_cast<size_t>(last + 1) * sizeof(T);
  }
  void access(const cudaStream_t stream) const {
    const auto one = [&](const Matrix& x, int64_t rows, int64_t columns, bool writes) {
      visit(x.type, [&]<class T>(T) { stream->access(x.data, extent<T>(x, rows, columns, count), writes, "cuBLAS"); });
    };
    one(a, m, k, false);
    one(b, k, n, false);
    one({c, type_c, 1, ldc, stride_c}, m, n, true);
  }

  template <class C> void run(C alpha, C beta) const {
    for (int64_t number = 0; number < count; ++number) {
      const std::vector<C> left = values_of<C>(a, number, m, k, tf32), right = values_of<C>(b, number, k, n, tf32);
      visit(type_c, [&]<class T>(T) {
        std::vector<C> column(static_cast<size_t>(m));
        for (int64_t j = 0; j < n; ++j) {
          std::fill(column.begin(), column.end(), C(0));
          for (int64_t p = 0; p < k; ++p) {
            const C factor = right[static_cast<size_t>(j * k + p)];
            const C* const from = left.data() + p * m;
            for (int64_t i = 0; i < m; ++i) column[static_cast<size_t>(i)] += from[i] * factor;
          }
          T* const to = static_cast<T*>(c) + number * stride_c + j * ldc;
          for (int64_t i = 0; i < m; ++i) {
            const C before = beta == C(0) ? C(0) : beta * static_cast<C>(static_cast<weft::Compute<T>>(to[i]));
            to[i] = T(alpha * column[static_cast<size_t>(i)] + before);
          }
        }
      });
    }
  }
};

}  // namespace

extern "C" {

cublasStatus_t cublasCreate(cublasHandle_t* handle) {
  *handle = new weft_emulated_blas;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream) {
  if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (!stream->is_current()) return CUBLAS_STATUS_EXECUTION_FAILED;
  handle->stream = stream;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetWorkspace(cublasHandle_t, void*, size_t) { return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasSetMathMode(cublasHandle_t, cublasMath_t) { return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasSetPointerMode(cublasHandle_t handle, cublasPointerMode_t mode) {
  handle->factors = mode;
  return CUBLAS_STATUS_SUCCESS;
}

const char* cublasGetStatusString(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS: return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED: return "the library was not initialized";
    case CUBLAS_STATUS_ALLOC_FAILED: return "the resource allocation failed";
    case CUBLAS_STATUS_INVALID_VALUE: return "an unsupported value or parameter was passed to the function";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "the GPU program failed to execute: another card is current than the handle's";
    case CUBLAS_STATUS_NOT_SUPPORTED: return "the functionality requested is not supported";
  }
  return "unknown";
}

cublasStatus_t cublasGemmStridedBatchedEx_64(cublasHandle_t handle, cublasOperation_t operation_a,
                                             cublasOperation_t operation_b, int64_t m, int64_t n, int64_t k,
                                             const void* alpha, const void* a, cudaDataType_t type_a, int64_t lda,
                                             int64_t stride_a, const void* b, cudaDataType_t type_b, int64_t ldb,
                                             int64_t stride_b, const void* beta, void* c, cudaDataType_t type_c,
                                             int64_t ldc, int64_t stride_c, int64_t count, cublasComputeType_t compute,
                                             cublasGemmAlgo_t) {
  const bool transpose_a = operation_a == CUBLAS_OP_T, transpose_b = operation_b == CUBLAS_OP_T;
  const bool wide = compute == CUBLAS_COMPUTE_64F;
  if (!handle || !handle->stream) return CUBLAS_STATUS_NOT_INITIALIZED;
  const cudaStream_t stream = handle->stream;
  if (!stream->is_current()) return CUBLAS_STATUS_EXECUTION_FAILED;
  if (m < 0 || n < 0 || k < 0 || count < 0 || lda < std::max<int64_t>(1, transpose_a ? k : m) ||
      ldb < std::max<int64_t>(1, transpose_b ? n : k) || ldc < std::max<int64_t>(1, m) ||
      (count > 1 && stride_c < ldc * (n - 1) + m))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (type_a != type_b || !is_known(compute, type_a, type_c)) return CUBLAS_STATUS_NOT_SUPPORTED;
  const auto matrix = [](const void* data, cudaDataType_t type, bool transpose, int64_t ld, int64_t step) {
    return Matrix{data, type, transpose ? ld : 1, transpose ? 1 : ld, step};
  };
  const Product product{m,
                        n,
                        k,
                        count,
                        matrix(a, type_a, transpose_a, lda, stride_a),
                        matrix(b, type_b, transpose_b, ldb, stride_b),
                        c,
                        type_c,
                        ldc,
                        stride_c,
                        compute == CUBLAS_COMPUTE_32F_FAST_TF32};
  const auto enqueue = [&]<class C>(const C* x, const C* y) {
    if (handle->factors == CUBLAS_POINTER_MODE_DEVICE)
      stream->enqueue_product([product, stream, x, y] {
        for (const C* const factor : {x, y}) stream->access(factor, sizeof *factor, false, "cuBLAS");
        product.access(stream);
        product.run(*x, *y);
      });
    else  // they are read now
      stream->enqueue_product([product, stream, x = *x, y = *y] {
        product.access(stream);
        product.run(x, y);
      });
  };
  if (wide)
    enqueue(static_cast<const double*>(alpha), static_cast<const double*>(beta));
  else
    enqueue(static_cast<const float*>(alpha), static_cast<const float*>(beta));
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGemmEx_64(cublasHandle_t handle, cublasOperation_t operation_a, cublasOperation_t operation_b,
                               int64_t m, int64_t n, int64_t k, const void* alpha, const void* a, cudaDataType_t type_a,
                               int64_t lda, const void* b, cudaDataType_t type_b, int64_t ldb, const void* beta,
                               void* c, cudaDataType_t type_c, int64_t ldc, cublasComputeType_t compute,
                               cublasGemmAlgo_t algorithm) {
  return cublasGemmStridedBatchedEx_64(handle, operation_a, operation_b, m, n, k, alpha, a, type_a, lda, 0, b, type_b,
                                       ldb, 0, beta, c, type_c, ldc, 0, 1, compute, algorithm);
}
}
