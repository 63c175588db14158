// SPDX-License-Identifier: Apache-2.0
#pragma once
// The threads of a block, one after the other. Each is a fiber of one thread of the host, which goes on with the next
// one whenever it must wait for the others.
#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>

struct dim3 {  // Weft's kernels have one dimension
  unsigned x;
  constexpr dim3(unsigned x = 1) : x(x) {}
};

// Where the running thread stands, as CUDA names it.
extern constinit thread_local dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace weft::emulated {

constexpr int warp_lanes = 32;

inline int lane() { return static_cast<int>(threadIdx.x) % warp_lanes; }

// Runs `thread` for every thread of every block. Orders differ from launch to launch: a right kernel does not care.
cudaError_t launch(Stream* stream, dim3 grid, dim3 block, std::function<void()> thread);

// Called by threads of a block. Where not all of them do, the launch fails.
void meet_block();
uint64_t exchange_lanes(unsigned mask, uint64_t mine, int lane);

}  // namespace weft::emulated
