// SPDX-License-Identifier: Apache-2.0
#pragma once
// The part of CUDA's language that Weft's kernels use: a kernel is a function that each of a block's threads calls.
#include <cuda_runtime_api.h>

#include <cstdint>
#include <tuple>
#include <type_traits>

#include "tests/emulated_card/block.h"

#define __global__
#define __device__
#define __host__
#define __launch_bounds__(...)
#define __shared__ static thread_local  // a block's threads are fibers of one thread

template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* shape, void (*kernel)(Parameters...),
                               const Arguments&... arguments) {
  static const std::string parameters = weft::emulated::names_of<Parameters...>();
  const auto run = [kernel, values = std::tuple<Parameters...>(arguments...)] { std::apply(kernel, values); };
  return weft::emulated::launch(*shape, {reinterpret_cast<const void*>(kernel), parameters}, run);
}

// They may be stored where values of another type are.
struct alignas(8) [[gnu::may_alias]] uint2 {
  unsigned x, y;
};
struct alignas(16) [[gnu::may_alias]] uint4 {
  unsigned x, y, z, w;
};
template <class T> void __stwb(T* to, T value) { *to = value; }

inline void __syncthreads() { weft::emulated::meet_block(); }
// Whether any thread of the block has something else than zero.
inline int __syncthreads_or(int mine) {
  __shared__ int any;
  __syncthreads();  // all threads have read the previous value
  any = 0;
  __syncthreads();
  any |= mine != 0;
  __syncthreads();
  return any;
}

inline unsigned atomicCAS(unsigned* at, unsigned expected, unsigned desired) {
  __atomic_compare_exchange_n(at, &expected, desired, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  return expected;
}
inline unsigned atomicExch(unsigned* at, unsigned value) { return __atomic_exchange_n(at, value, __ATOMIC_SEQ_CST); }
inline void __threadfence_system() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

// T has a shuffle in CUDA. All lanes must take part.
template <class T> T weft_value_of_lane(unsigned mask, T mine, int lane) {
  static_assert(std::is_arithmetic_v<T>);
  uint64_t bits = 0;
  __builtin_memcpy(&bits, &mine, sizeof mine);
  bits = weft::emulated::exchange_lanes(mask, bits, lane);
  __builtin_memcpy(&mine, &bits, sizeof mine);
  return mine;
}
template <class T> T __shfl_sync(unsigned mask, T mine, int lane) { return weft_value_of_lane(mask, mine, lane); }
template <class T> T __shfl_xor_sync(unsigned mask, T mine, int bits) {
  return weft_value_of_lane(mask, mine, weft::emulated::lane() ^ bits);
}
template <class T> T __shfl_up_sync(unsigned mask, T mine, int distance) {
  const int lane = weft::emulated::lane();
  return weft_value_of_lane(mask, mine, lane < distance ? lane : lane - distance);
}
