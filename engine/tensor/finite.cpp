// SPDX-License-Identifier: Apache-2.0
#include "weft/engine/tensor/finite.h"

#include <algorithm>
#include <cstring>

namespace weft {
namespace {

// In infinities and NaNs, all bits of the exponent are set.
template <class Word> std::optional<int64_t> first_with(Word exponent, const void* words, int64_t count) {
  constexpr int64_t block_size = 4096;
  const auto* begin = static_cast<const char*>(words);
  const auto not_finite = [&](int64_t i) {
    Word word;
    std::memcpy(&word, begin + i * static_cast<int64_t>(sizeof word), sizeof word);
    return (word & exponent) == exponent;
  };
  for (int64_t block = 0; block < count; block += block_size) {
    const int64_t end = std::min(block + block_size, count);
    bool any = false;
    for (int64_t i = block; i < end; ++i) any |= not_finite(i);
    for (int64_t i = block; any && i < end; ++i)
      if (not_finite(i)) return i;
  }
  return {};
}

}  // namespace

std::optional<int64_t> first_not_finite(const void* elements, int64_t count, DType dtype) {
  switch (dtype) {
    case DType::f32: return first_with(uint32_t{0x7f800000}, elements, count);
    case DType::f64: return first_with(uint64_t{0x7ff0000000000000}, elements, count);
    case DType::bf16: return first_with(uint16_t{0x7f80}, elements, count);
    default: return {};
  }
}

std::string not_finite(const Shape& shape, int64_t place, double value) {
  std::string index;
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    index = text(place % shape[axis]) + (index.empty() ? "" : ", " + index);
    place /= shape[axis];
  }
  return "element (" + index + ") is " + text(value);
}

std::string what_is_not_finite(const Tensor& x) {
  const Tensor host = x.to(Device::cpu);
  const auto place = first_not_finite(host.data(), host.size(), host.dtype());
  return place ? not_finite(x.shape(), *place, host.reshape({host.size()}).slice(*place, *place + 1).item()) : "";
}

}  // namespace weft
