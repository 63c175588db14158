#pragma once
// The first number that is not finite, in memory as it lies in a file or a tensor of the host.
#include <optional>
#include <string>

#include "engine/tensor.h"

namespace weft {

// Of that many whole elements: its place among them.
std::optional<int64_t> first_not_finite(const void* elements, int64_t count, DType dtype);

// "element (3, 7) is nan", or nothing; of a tensor on any device.
std::string what_is_not_finite(const Tensor& x);
// The same of an element in its place.
std::string not_finite(const Shape& shape, int64_t place, double value);

}  // namespace weft
