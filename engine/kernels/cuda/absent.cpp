// SPDX-License-Identifier: Apache-2.0
// This build has no CUDA.
#include "weft/engine/kernels/backend.h"

std::unique_ptr<weft::Backend> weft::make_cuda_backend() { return nullptr; }
