// SPDX-License-Identifier: Apache-2.0
#pragma once
// Launches of kernels over n elements or over rows. Grids are limited and threads use strides, so any 64-bit count
// works; a count of zero launches nothing. The division of the work among threads, and its order, depend only on the
// extents, so the same inputs give the same bits at any address.
#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

#include "weft/engine/kernels/cuda/context.h"
#include "weft/engine/tensor/tensor.h"

namespace weft::cuda {

constexpr int block_threads = 256;
constexpr int warp_threads = 32;
constexpr unsigned all_lanes = 0xffffffffu;
constexpr int64_t max_blocks = 1 << 16;

constexpr int64_t ceil_divide(int64_t a, int64_t b) { return (a + b - 1) / b; }

template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), int64_t blocks, const Arguments&... arguments) {
  if (blocks == 0) return;
  cudaLaunchConfig_t shape = {};
  shape.gridDim = dim3(static_cast<unsigned>(std::min(blocks, max_blocks)));
  shape.blockDim = dim3(block_threads);
  shape.stream = context().stream();
  check(cudaLaunchKernelEx(&shape, kernel, arguments...), "kernel launch");
}

// i / n and i % n, in 32 bits if they suffice, because a 64-bit division is a long subroutine on the device.
struct Split {
  int64_t quotient, remainder;
};
WEFT_HD inline Split split(int64_t i, int64_t n) {
  if (((i | n) >> 32) != 0) return {i / n, i % n};
  const uint32_t small = static_cast<uint32_t>(n), quotient = static_cast<uint32_t>(i) / small;
  return {quotient, static_cast<uint32_t>(i) - quotient * small};
}

// ---- One thread per element: f(i).
template <class F> __global__ void __launch_bounds__(block_threads) for_each_kernel(int64_t n, F f) {
  const int64_t stride = int64_t{gridDim.x} * block_threads;
  for (int64_t i = int64_t{blockIdx.x} * block_threads + threadIdx.x; i < n; i += stride) f(i);
}
template <class F> void for_each(int64_t n, const F& f) {
  launch(for_each_kernel<F>, ceil_divide(n, block_threads), n, f);
}

// ---- Several consecutive elements per thread: y[i] = f(x[i]...), 16 bytes of the widest type per access. y may be an
// x.
template <class T, int N> struct alignas(sizeof(T) * N) Pack { T at[N]; };

template <class T, int N> __device__ bool whole(const T* place, int64_t count) {
  return count >= N && reinterpret_cast<uintptr_t>(place) % sizeof(Pack<T, N>) == 0;
}
template <int N, class T> __device__ Pack<T, N> load(const T* from, int64_t count) {
  if (whole<T, N>(from, count)) return *reinterpret_cast<const Pack<T, N>*>(from);
  Pack<T, N> pack;
#pragma unroll
  for (int k = 0; k < N; ++k) pack.at[k] = k < count ? from[k] : T{};
  return pack;
}
// Stores a pack in the smallest number of accesses (tests/kernels/sass.py). The compiler splits a plain assignment into
// its values if it does not know that the address is in device memory, or if it unrolls loops.
template <int N, class T> __device__ void store_whole(const Pack<T, N>& pack, T* to) {
  using Access = std::conditional_t<sizeof(pack) % sizeof(uint4) == 0, uint4, uint2>;
  constexpr size_t count = sizeof(pack) / sizeof(Access);
  if constexpr (count == 0) {
    *reinterpret_cast<Pack<T, N>*>(to) = pack;
  } else {
    const auto parts = std::bit_cast<std::array<Access, count>>(pack);
#pragma unroll
    for (size_t k = 0; k < count; ++k) __stwb(reinterpret_cast<Access*>(to) + k, parts[k]);
  }
}
template <int N, class T> __device__ void store(const Pack<T, N>& pack, T* to, int64_t count) {
  if (whole<T, N>(to, count)) return store_whole(pack, to);
#pragma unroll
  for (int k = 0; k < N; ++k)
    if (k < count) to[k] = pack.at[k];
}

template <class... T> constexpr int pack_of = 16 / static_cast<int>(std::max({sizeof(T)...}));

// Maps the first `count` values, at most N.
template <int N, class F, class Y, class... X>
__device__ void map_pack(int64_t count, const F& f, Y* y, const X*... x) {
  const auto apply = [&](const Pack<X, N>&... in) {
    Pack<Y, N> out;
#pragma unroll
    for (int k = 0; k < N; ++k) out.at[k] = f(in.at[k]...);
    store(out, y, count);
  };
  apply(load<N>(x, count)...);
}
template <int N, class F, class Y, class... X>
__global__ void __launch_bounds__(block_threads) map_kernel(int64_t n, F f, Y* y, const X*... x) {
  const int64_t stride = int64_t{gridDim.x} * block_threads * N;
  for (int64_t i = (int64_t{blockIdx.x} * block_threads + threadIdx.x) * N; i < n; i += stride)
    map_pack<N>(n - i, f, y + i, x + i...);
}
template <class F, class Y, class... X> void map(int64_t n, const F& f, Y* y, const X*... x) {
  constexpr int N = pack_of<Y, X...>;
  launch(map_kernel<N, F, Y, X...>, ceil_divide(n, int64_t{block_threads} * N), n, f, y, x...);
}

// ---- A team per row: f(team, row). A team is a warp or a block. All its threads call its member functions together.
template <class T> __device__ T swap_lanes(T x, int distance) { return __shfl_xor_sync(all_lanes, x, distance); }

template <int Size> struct Team {
  static constexpr int size = Size, warps = Size / warp_threads;
  __device__ static int lane() { return static_cast<int>(threadIdx.x) % Size; }

  // Combines one value per thread in a fixed order. Every thread gets the result.
  template <class T, class F> __device__ T reduce(T value, const F& f) const {
    for (int distance = warp_threads / 2; distance > 0; distance /= 2) value = f(value, swap_lanes(value, distance));
    if constexpr (warps > 1) {
      __shared__ T of_warp[warps];
      publish(value, of_warp, 0);
      value = of_warp[0];
      for (int w = 1; w < warps; ++w) value = f(value, of_warp[w]);
    }
    return value;
  }
  // Combines the values of threads whose numbers differ by a multiple of `across`, in a fixed order. The first `across`
  // threads get the results. A team must be a block.
  template <int across, class T, class F> __device__ T reduce_columns(T value, const F& f) const {
    __shared__ T of_thread[Size];
    __syncthreads();  // all threads have read the previous values
    of_thread[lane()] = value;
    __syncthreads();
    for (int other = lane() + across; lane() < across && other < Size; other += across)
      value = f(value, of_thread[other]);
    return value;
  }
  // The sum of the values of this and all earlier threads. `total` becomes the sum of all values.
  template <class T> __device__ T scan(T value, T& total) const {
    const int lane = static_cast<int>(threadIdx.x) % warp_threads, warp = static_cast<int>(threadIdx.x) / warp_threads;
    for (int distance = 1; distance < warp_threads; distance *= 2) {
      const T earlier = __shfl_up_sync(all_lanes, value, distance);
      if (lane >= distance) value += earlier;
    }
    if constexpr (warps == 1) {
      total = __shfl_sync(all_lanes, value, warp_threads - 1);
      return value;
    } else {
      __shared__ T of_warp[warps];
      publish(value, of_warp, warp_threads - 1);
      T before = total = T(0);
      for (int w = 0; w < warps; ++w) {
        if (w == warp) before = total;
        total += of_warp[w];
      }
      return before + value;
    }
  }

 private:
  // Publishes the value of one lane of each warp to all threads.
  template <class T> __device__ static void publish(const T& value, T* of_warp, int lane) {
    __syncthreads();  // all threads have read the previous values
    if (static_cast<int>(threadIdx.x) % warp_threads == lane) of_warp[threadIdx.x / warp_threads] = value;
    __syncthreads();
  }
};

// Without the 1 the compiler would rather spill registers than have fewer than four blocks at a time.
template <int Size, class F> __global__ void __launch_bounds__(block_threads, 1) team_kernel(int64_t rows, F f) {
  constexpr int per_block = block_threads / Size;
  const int64_t stride = int64_t{gridDim.x} * per_block;
  for (int64_t row = int64_t{blockIdx.x} * per_block + threadIdx.x / Size; row < rows; row += stride)
    f(Team<Size>{}, row);
}
// With a block as the team.
template <class F> void for_each_block(int64_t blocks, const F& f) {
  launch(team_kernel<block_threads, F>, blocks, blocks, f);
}
constexpr int64_t longest_row_of_warp = 1024;
template <class F> void for_each_row(int64_t rows, int64_t length, const F& f) {
  if (length <= longest_row_of_warp)
    launch(team_kernel<warp_threads, F>, ceil_divide(rows, block_threads / warp_threads), rows, f);
  else
    for_each_block(rows, f);
}

// Calls visit(j, x[j]...) for this thread's part of a row of n values.
template <class Team, class Visit, class... X>
__device__ void for_each_value(Team team, int64_t n, const Visit& visit, const X*... x) {
  constexpr int N = pack_of<X...>;
  for (int64_t j = team.lane() * N; j < n; j += Team::size * N) {
    const auto apply = [&](const Pack<X, N>&... in) {
#pragma unroll
      for (int k = 0; k < N; ++k)
        if (j + k < n) visit(j + k, in.at[k]...);
    };
    apply(load<N>(x + j, n - j)...);
  }
}
// y[j] = f(x[j]...) for a row of n values.
template <class Team, class F, class Y, class... X>
__device__ void map_row(Team team, int64_t n, const F& f, Y* y, const X*... x) {
  constexpr int N = pack_of<Y, X...>;
  for (int64_t j = team.lane() * N; j < n; j += Team::size * N) map_pack<N>(n - j, f, y + j, x + j...);
}
// Whether map_row writes y[j] on this thread, which may then write it again.
template <class Y, class... X, class Team> __device__ bool writes(Team team, int64_t j) {
  return j / pack_of<Y, X...> % Team::size == team.lane();
}

}  // namespace weft::cuda
