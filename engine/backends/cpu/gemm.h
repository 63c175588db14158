#pragma once
// Matrix multiplication, row-major, one thread: c = alpha * op(a) op(b) + bias, finished while it is in cache.
//
// Bits. The sum over k is cut into blocks whose length depends on k alone, and inside a block it is one chain of FMAs
// in ascending order. An element of c therefore depends on its row of op(a), its column of op(b) and k, and on nothing
// else: not on m or n, not on the leading dimensions, not on how rows are split over ranks, not on packing.

#include <cstdint>

#include "engine/backends/cpu/scratch.h"

namespace weft::cpu {

template <class T> struct Epilogue {
  /// Called once for every finished piece of every row of c: `count` values from c(row, column) on. Pieces come in any
  /// order and their width is the kernel's choice. May rewrite the values; must not call gemm.
  using Finish = void (*)(void* context, T* values, int64_t row, int64_t column, int64_t count);

  bool accumulate = false;  ///< c += instead of c =
  T alpha = 1;              ///< factor of op(a) op(b)
  const T* bias = nullptr;  ///< n values added to every row, or null
  Finish finish = nullptr;
  void* context = nullptr;
};

/// op(a) is m x k and op(b) k x n; `transpose_x` says that x is stored the other way round. Extents may be zero: k = 0
/// leaves the bias. c must not overlap a or b.
template <class T>
void gemm(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k, const T* a, int64_t lda, const T* b,
          int64_t ldb, T* c, int64_t ldc, const Epilogue<T>& epilogue = {});

/// op(b) in the kernel's own layout, for a matrix that is multiplied many times (weights of a convolution, a codebook).
template <class T> class PackedB {
 public:
  PackedB() = default;
  PackedB(bool transpose_b, int64_t n, int64_t k, const T* b, int64_t ldb) { pack(transpose_b, n, k, b, ldb); }

  /// Replaces the contents; the memory is kept when it suffices.
  void pack(bool transpose_b, int64_t n, int64_t k, const T* b, int64_t ldb);

  int64_t n() const { return n_; }
  int64_t k() const { return k_; }
  const T* data() const { return panels_.data(); }

 private:
  Scratch<T> panels_;
  int64_t n_ = 0;
  int64_t k_ = 0;
};

/// The same product, bit for bit, with b packed before: op(a) is m x b.k(), c is m x b.n().
template <class T>
void gemm(bool transpose_a, int64_t m, const T* a, int64_t lda, const PackedB<T>& b, T* c, int64_t ldc,
          const Epilogue<T>& epilogue = {});

}  // namespace weft::cpu
