// SPDX-License-Identifier: Apache-2.0
#pragma once
// The threads of a block run one after the other. Each is a fiber of one host thread, which switches to the next
// whenever one must wait for the others.
#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <string>

struct dim3 {  // Weft's kernels have one dimension
  unsigned x;
  constexpr dim3(unsigned x = 1) : x(x) {}
};

struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes;
  cudaStream_t stream;
};

// The running thread's indices, with CUDA's names.
extern constinit thread_local dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace weft::emulated {

constexpr int warp_lanes = 32;

inline int lane() { return static_cast<int>(threadIdx.x) % warp_lanes; }

struct Kernel {
  const void* address;
  std::string parameters;  // the only names that it has at run time
};

// Runs `thread` for every thread of every block. The order differs between launches, which must not matter to a kernel.
cudaError_t launch(const cudaLaunchConfig_t& shape, const Kernel& kernel, std::function<void()> thread);

template <class... Parameters> std::string names_of() {
  const std::string all = __PRETTY_FUNCTION__;
  return all.substr(all.find('{'), all.rfind('}') + 1 - all.find('{'));
}

// Called by threads of a block. The launch fails if some of them do not call it.
void meet_block();
uint64_t exchange_lanes(unsigned mask, uint64_t mine, int lane);

}  // namespace weft::emulated
