// SPDX-License-Identifier: Apache-2.0
// Sums of rows by index.
#include <algorithm>

#include "weft/engine/kernels/cuda/checked_indices.cuh"
#include "weft/engine/kernels/cuda/cuda_backend.h"

namespace weft {
namespace cuda {
namespace {

using Block = Team<block_threads>;

// A block for some columns of a row of the result. It reads every index, and visits the rows that it finds in their
// order, so that sums have a fixed order and need no atomics. This takes rows(x) * rows(result) steps. The indices come
// from cache.
struct RowsByIndex {
  CheckedIndices indices;
  int64_t count, parts;

  RowsByIndex(const Indices& indices, int64_t length)
      : indices(indices), count(indices.size()), parts(std::max<int64_t>(ceil_divide(length, block_threads), 1)) {}

  struct Place {
    int64_t row, column;
  };
  __device__ Place place(Block block, int64_t i) const {
    const auto [row, part] = split(i, parts);
    return {row, part * block_threads + block.lane()};
  }
  // visit(r) for the rows r of a row of the result, whose number this returns.
  template <class Visit> __device__ int64_t of(Block block, int64_t row, const Visit& visit) const {
    int64_t number = 0;
    for (int64_t begin = 0; begin < count; begin += block_threads) {
      __shared__ int64_t found[block_threads];
      const int64_t r = begin + block.lane();
      const bool here = r < count && indices[r] == row;
      if (!__syncthreads_or(here)) continue;
      int total;
      const int place = block.scan(int{here}, total);
      if (here) found[place - 1] = r;
      __syncthreads();
      for (int k = 0; k < total; ++k) visit(found[k]);
      __syncthreads();
      number += total;
    }
    return number;
  }
};

template <class T> struct ScatterAdd {
  const T* x;
  RowsByIndex rows;
  int64_t length;
  T* y;
  __device__ void operator()(Block block, int64_t i) const {
    const auto [row, j] = rows.place(block, i);
    Compute<T> sum = 0;
    rows.of(block, row, [&, j = j](int64_t r) {
      if (j < length) sum += Compute<T>(x[r * length + j]);
    });
    if (j < length) y[row * length + j] = T(sum);
  }
};

template <class T> struct AddExactRows {
  const T* x;
  RowsByIndex rows;
  int64_t length, each;  // of the four parts
  double *sums, *counts;
  __device__ void operator()(Block block, int64_t i) const {
    const auto [row, j] = rows.place(block, i);
    double sum[4] = {};
    const int64_t number = rows.of(block, row, [&, j = j](int64_t r) {
      if (j >= length) return;
      const ExactParts parts(static_cast<double>(static_cast<Compute<T>>(x[r * length + j])));
#pragma unroll
      for (int p = 0; p < 4; ++p) sum[p] += parts.at[p];
    });
    if (j == 0) counts[row] += static_cast<double>(number);
    if (j >= length) return;
#pragma unroll
    for (int p = 0; p < 4; ++p) sums[p * each + row * length + j] += sum[p];
  }
};

template <class F> void for_each_part(int64_t rows, const F& f) { for_each_block(rows * f.rows.parts, f); }

}  // namespace
}  // namespace cuda

void CudaBackend::scatter_add_rows(const Tensor& x, const Indices& indices, Tensor& y) {
  if (x.size() == 0 || y.size() == 0) {
    fill(0, y);
    return check_indices(indices);
  }
  const int64_t length = x.size() / indices.size();
  visit_floating(x.dtype(), [&]<class T>() {
    cuda::for_each_part(y.size() / length,
                        cuda::ScatterAdd<T>{x.data<T>(), cuda::RowsByIndex(indices, length), length, y.mutate<T>()});
  });
}

void CudaBackend::add_exact_rows(const Tensor& x, const Indices& indices, Tensor& sums, Tensor& counts) {
  if (indices.size() == 0 || counts.size() == 0) return check_indices(indices);
  const int64_t length = x.size() / indices.size();
  visit_floating(x.dtype(), [&]<class T>() {
    cuda::for_each_part(counts.size(),
                        cuda::AddExactRows<T>{x.data<T>(), cuda::RowsByIndex(indices, length), length,
                                              counts.size() * length, sums.mutate<double>(), counts.mutate<double>()});
  });
}

}  // namespace weft
