// SPDX-License-Identifier: Apache-2.0
#pragma once
// Finds the first number that is not finite.
#include <optional>
#include <string>

#include "weft/engine/tensor/tensor.h"

namespace weft {

// The index of the first of `count` elements in host memory that is not finite. They may be unaligned.
std::optional<int64_t> first_not_finite(const void* elements, int64_t count, DType dtype);

// "element (3, 7) is nan", or nothing if all elements are finite, for a tensor on any device.
std::string what_is_not_finite(const Tensor& x);
// The same text for the element with this index and value.
std::string not_finite(const Shape& shape, int64_t place, double value);

}  // namespace weft
