// SPDX-License-Identifier: Apache-2.0
#pragma once
// Row-major matrix multiplication on one thread: c = alpha * op(a) op(b) + bias, with an epilogue while c is in cache.
//
// Bits. The sum over k is divided into blocks whose length depends only on k, and on the longest block that a packed b
// allows. Within a block it is one chain of FMAs in ascending order. So an element of c depends only on its row of
// op(a), its column of op(b) and k. It does not depend on m or n, the leading dimensions, the division of rows among
// ranks, or packing.

#include <cstdint>

#include "weft/engine/kernels/cpu/scratch.h"

namespace weft::cpu {

template <class T> struct Epilogue {
  /// Called once for every finished piece of every row of c: `count` values from c(row, column) on. The kernel chooses
  /// the order and the width of the pieces. The hook may change the values, but must not call gemm.
  using Finish = void (*)(void* context, T* values, int64_t row, int64_t column, int64_t count);

  bool accumulate = false;  ///< c += instead of c =
  T alpha = 1;              ///< factor of op(a) op(b)
  const T* bias = nullptr;  ///< n values added to every row, or null
  Finish finish = nullptr;
  void* context = nullptr;
};

/// The most elements of k that are one chain of FMAs.
constexpr int64_t largest_block_k = 384;

/// op(a) is m x k and op(b) k x n; with `transpose_x`, x is stored transposed. Extents may be zero; with k = 0 the
/// result is the bias. c must not overlap a or b.
template <class T>
void gemm(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k, const T* a, int64_t lda, const T* b,
          int64_t ldb, T* c, int64_t ldc, const Epilogue<T>& epilogue = {});

/// op(b) in the kernel's own layout, for a matrix that is multiplied many times (weights of a convolution, a codebook).
template <class T> class PackedB {
 public:
  PackedB() = default;
  PackedB(bool transpose_b, int64_t n, int64_t k, const T* b, int64_t ldb) { pack(transpose_b, n, k, b, ldb); }

  /// Replaces the contents. The memory is reused if it suffices. Sums of shorter blocks of k have smaller rounding
  /// errors, and take longer.
  void pack(bool transpose_b, int64_t n, int64_t k, const T* b, int64_t ldb, int64_t longest_block = largest_block_k);

  int64_t n() const { return n_; }
  int64_t k() const { return k_; }
  int64_t block_k() const { return block_k_; }
  const T* data() const { return panels_.data(); }

 private:
  Scratch<T> panels_;
  int64_t n_ = 0;
  int64_t k_ = 0;
  int64_t block_k_ = 1;
};

/// The same product, bit for bit unless b has shorter blocks, with a packed b: op(a) is m x b.k(), c is m x b.n().
template <class T>
void gemm(bool transpose_a, int64_t m, const T* a, int64_t lda, const PackedB<T>& b, T* c, int64_t ldc,
          const Epilogue<T>& epilogue = {});

}  // namespace weft::cpu
