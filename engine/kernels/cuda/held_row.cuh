// SPDX-License-Identifier: Apache-2.0
#pragma once
// A row that a warp holds in registers. All its loads are under way together, and later passes over it need no memory.
#include "weft/engine/kernels/cuda/launch.cuh"

namespace weft::cuda {

template <class T> class HeldRow {
  using C = Compute<T>;

 public:
  __device__ HeldRow(const T* row, int64_t n) : left_(static_cast<int>(n) - first()) {
#pragma unroll
    for (int p = 0; p < packs; ++p) {
      const Pack<T, N> pack = load<N>(row + first() + p * apart, left_ - p * apart);
#pragma unroll
      for (int k = 0; k < N; ++k) values_[p * N + k] = C(pack.at[k]);
    }
  }
  // Calls f(value, others' value...) for this thread's values, which f may change.
  template <class F, class... Others> __device__ void for_each(const F& f, Others&... others) {
#pragma unroll
    for (int i = 0; i < packs * N; ++i)
      if (i / N * apart + i % N < left_) f(values_[i], others.values_[i]...);
  }
  __device__ void store(T* row) const {
#pragma unroll
    for (int p = 0; p < packs; ++p) {
      Pack<T, N> pack;
#pragma unroll
      for (int k = 0; k < N; ++k) pack.at[k] = T(values_[p * N + k]);
      cuda::store(pack, row + first() + p * apart, left_ - p * apart);
    }
  }

 private:
  static constexpr int N = pack_of<T>, apart = warp_threads * N, packs = longest_row_of_warp / apart;
  __device__ static int first() { return Team<warp_threads>::lane() * N; }

  const int left_;  // the number of values from this thread's first one on
  C values_[packs * N];
};

}  // namespace weft::cuda
