// SPDX-License-Identifier: Apache-2.0
#pragma once
// Sorting in a block's shared memory, by merging. Each thread finds by bisection where its part of a merged run begins
// in both runs, and merges as many values as every other thread.
#include "weft/engine/kernels/cuda/launch.cuh"

namespace weft::cuda {

// How many of the first `count` values of two merged runs are of the first run. precedes(i, j) tells whether its value
// i precedes value j of the second run.
template <class N, class Precedes>
__device__ N from_first(N size_of_first, N size_of_second, N count, const Precedes& precedes) {
  N low = count > size_of_second ? count - size_of_second : 0, high = count < size_of_first ? count : size_of_first;
  while (low < high) {
    const N middle = (low + high) / 2;
    if (precedes(middle, count - 1 - middle))
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

// The type is trivial, because it is in shared memory. R has an order, and a value that comes last.
template <class R> class SharedRuns {
 public:
  static constexpr int own = 128 / sizeof(R), size = own * block_threads;  // values of a thread, and of all

  __device__ R& operator[](int i) { return places_[i + i / own]; }

  // Sorts neighbouring runs of `length` values each, which is `own` times a power of two.
  __device__ void sort(int length) {
    R mine[own];
    __syncthreads();
#pragma unroll
    for (int n = 0; n < own; ++n) mine[n] = (*this)[begin() + n];
    sort_own(mine);
    replace(mine);
    for (int half = own; half < length; half *= 2) {
      const int first = begin() / (2 * half) * (2 * half);
      merge(first, first + half, first + 2 * half, mine);
      replace(mine);
    }
  }
  // Merges two runs that begin at zero and at `middle`.
  __device__ void merge(int middle, int end) {
    R mine[own];
    __syncthreads();
    merge(0, middle, end, mine);
    replace(mine);
  }

 private:
  __device__ static int begin() { return static_cast<int>(threadIdx.x) * own; }

  __device__ static void sort_own(R (&mine)[own]) {
#pragma unroll
    for (int round = 0; round < own; ++round)
#pragma unroll
      for (int n = round % 2; n + 1 < own; n += 2) {
        const R a = mine[n], b = mine[n + 1];
        mine[n] = b < a ? b : a;
        mine[n + 1] = b < a ? a : b;
      }
  }
  // This thread's part of [first, middle) and [middle, end), merged.
  __device__ void merge(int first, int middle, int end, R (&mine)[own]) {
    const int before = begin() - first;
    const auto precedes = [&](int i, int j) { return (*this)[first + i] < (*this)[middle + j]; };
    int i = first + from_first(middle - first, end - middle, before, precedes), j = middle + before - (i - first);
    R a = i < middle ? (*this)[i] : R::last(), b = j < end ? (*this)[j] : R::last();
#pragma unroll
    for (int n = 0; n < own; ++n) {
      const bool second = b < a;
      mine[n] = second ? b : a;
      const int next = second ? ++j : ++i;
      (second ? b : a) = next < (second ? end : middle) ? (*this)[next] : R::last();
    }
  }
  __device__ void replace(const R (&mine)[own]) {
    __syncthreads();
#pragma unroll
    for (int n = 0; n < own; ++n) (*this)[begin() + n] = mine[n];
    __syncthreads();
  }

  R places_[size + block_threads];  // one is left out after each thread's, so that threads use different banks
};

}  // namespace weft::cuda
