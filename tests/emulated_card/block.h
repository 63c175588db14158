// SPDX-License-Identifier: Apache-2.0
#pragma once
// The threads of a block run one after the other. Each is a fiber of one host thread, which switches to the next
// whenever one must wait for the others.
#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>

struct dim3 {  // Weft's kernels have one dimension
  unsigned x;
  constexpr dim3(unsigned x = 1) : x(x) {}
};

// The running thread's indices, with CUDA's names.
extern constinit thread_local dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace weft::emulated {

constexpr int warp_lanes = 32;

inline int lane() { return static_cast<int>(threadIdx.x) % warp_lanes; }

// Runs `thread` for every thread of every block. The order differs between launches, which must not matter to a kernel.
struct Kernel {
  const void* address;
  const char* name;
};
cudaError_t launch(const Kernel& kernel, Stream* stream, dim3 grid, dim3 block, std::function<void()> thread);

// Called by threads of a block. The launch fails if some of them do not call it.
void meet_block();
uint64_t exchange_lanes(unsigned mask, uint64_t mine, int lane);

}  // namespace weft::emulated
