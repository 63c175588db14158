// SPDX-License-Identifier: Apache-2.0
#include "tests/emulated_card/product.h"

#include <algorithm>
#include <bit>
#include <type_traits>
#include <vector>

#include "weft/engine/tensor/dtype.h"

namespace weft::emulated {
namespace {

template <class F> void visit(cudaDataType_t type, const F& run) {
  switch (type) {
    case CUDA_R_32F: return run(float());
    case CUDA_R_64F: return run(double());
    case CUDA_R_16BF: return run(BFloat16());
    case CUDA_R_16F: return run(Half());
  }
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

// All memory from the first element of the first matrix to the last of the last one.
template <class T> size_t extent(const Matrix& x, int64_t rows, int64_t columns, int64_t count) {
  const int64_t last = (rows - 1) * x.stride_row + (columns - 1) * x.stride_column + (count - 1) * x.step;
  return rows * columns * count == 0 ? 0 : static_cast<size_t>(last + 1) * sizeof(T);
}

}  // namespace

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

Matrix operand(const void* data, cudaDataType_t type, cublasOperation_t operation, int64_t ld, int64_t step) {
  const bool transposed = operation == CUBLAS_OP_T;
  return {data, type, transposed ? ld : 1, transposed ? 1 : ld, step};
}

void Product::access(const cudaStream_t stream) const {
  const auto one = [&](const Matrix& x, int64_t rows, int64_t columns, bool writes) {
    visit(x.type, [&]<class T>(T) { stream->access(x.data, extent<T>(x, rows, columns, count), writes, "cuBLAS"); });
  };
  one(a, m, k, false);
  one(b, k, n, false);
  if (bias) one(biases(), m, 1, false);
  one({c, type_c, 1, ldc, stride_c}, m, n, true);
}

template <class C> void Product::run(C alpha, C beta) const {
  for (int64_t number = 0; number < count; ++number) {
    const std::vector<C> left = values_of<C>(a, number, m, k, tf32), right = values_of<C>(b, number, k, n, tf32);
    const std::vector<C> added = bias ? values_of<C>(biases(), 0, m, 1, false) : std::vector<C>(static_cast<size_t>(m));
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
          to[i] = T(alpha * column[static_cast<size_t>(i)] + before + added[static_cast<size_t>(i)]);
        }
      }
    });
  }
}

template void Product::run(float, float) const;
template void Product::run(double, double) const;

}  // namespace weft::emulated
