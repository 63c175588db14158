// SPDX-License-Identifier: Apache-2.0
#pragma once
// Pictures from tensors.
#include <string>

#include "weft/engine/tensor/tensor.h"

namespace weft {

// The bytes of a PNG file of u8 (height, width), (height, width, 1), or (height, width, 3) in RGB.
std::string png(const Tensor& picture);

// One picture of many: u8 (count, height, width, channels), `columns` per row, with a line of grey between them.
Tensor grid(const Tensor& pictures, int64_t columns);

// Floating values as u8: 0 becomes black, 1 white, and values outside are clamped.
Tensor as_pixels(const Tensor& values);

}  // namespace weft
