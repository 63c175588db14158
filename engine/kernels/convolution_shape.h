// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>

namespace weft {

// NHWC convolution geometry; weights are (kernel_height, kernel_width, channels, out_channels).
struct Convolution {
  int64_t batch, height, width, channels;
  int64_t kernel_height, kernel_width;
  int64_t out_height, out_width, out_channels;
  int64_t stride_y = 1, stride_x = 1, pad_y = 0, pad_x = 0, dilation_y = 1, dilation_x = 1;
};

}  // namespace weft
