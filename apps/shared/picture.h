#pragma once
// Tensors as pictures.
#include <string>

#include "engine/tensor.h"

namespace weft {

// The bytes of a PNG file of u8 (height, width), (height, width, 1), or (height, width, 3) in RGB.
std::string png(const Tensor& picture);

// Many small pictures as one: u8 (count, height, width, channels), in rows of `columns`, a line of background apart.
Tensor grid(const Tensor& pictures, int64_t columns);

// Floating values with 0 as black and 1 as white, and what is beyond as these.
Tensor as_pixels(const Tensor& values);

}  // namespace weft
