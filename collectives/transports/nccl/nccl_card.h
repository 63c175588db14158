// SPDX-License-Identifier: Apache-2.0
#pragma once
// The card that this rank computes on, by CUDA's runtime.
#include <cuda_runtime_api.h>

namespace weft {

void check_cuda(cudaError_t code, const char* call);
cudaStream_t my_stream();
int my_device();  // makes it the current one

}  // namespace weft
