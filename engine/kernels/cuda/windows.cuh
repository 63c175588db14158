// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "weft/engine/kernels/cuda/launch.cuh"

namespace weft::cuda {

/// The window, along one axis, whose tap is `offset` after the first tap of the first window; -1 if there is none.
__device__ inline int64_t window_of_tap(int64_t offset, int64_t stride, int64_t count) {
  if (offset < 0) return -1;
  const auto [index, between] = split(offset, stride);
  return between == 0 && index < count ? index : -1;
}

}  // namespace weft::cuda
