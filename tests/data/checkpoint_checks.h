// SPDX-License-Identifier: Apache-2.0
#pragma once
// Tensors to write into files, and the errors of reading a file.
#include <cstring>
#include <numeric>

#include "tests/support/message_of.h"
#include "tests/support/scratch_folder.h"
#include "weft/data/files/checkpoint.h"

namespace weft {

// Bit patterns that include NaNs, denormals and negative zeros of some floats.
inline Tensor bytes_as(const Shape& shape, DType dtype, unsigned seed) {
  Tensor tensor(shape, dtype);
  auto* bytes = tensor.mutate<unsigned char>();
  for (size_t i = 0; i < tensor.bytes(); ++i) bytes[i] = static_cast<unsigned char>((seed + i) * 2654435761u >> 13);
  return tensor;
}

// All types, odd sizes before wide types, a scalar, empty tensors, names that need escapes.
inline NamedTensors sample(unsigned seed = 1) {
  return {{"bytes", bytes_as({7}, DType::u8, seed)},
          {"half", bytes_as({3, 1}, DType::bf16, seed)},
          {"layer.0.weight", bytes_as({2, 3, 4}, DType::f32, seed)},
          {"none", bytes_as({0, 5}, DType::f64, seed)},
          {"scalar", bytes_as({}, DType::i64, seed)},
          {"\"\\\n\x01 Zoë", bytes_as({5}, DType::f64, seed)},
          {"no bytes", bytes_as({0}, DType::u8, seed)},
          {"six axes", bytes_as({1, 2, 1, 2, 1, 1}, DType::f32, seed)}};
}

inline bool same_bits(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() &&
         std::equal(a.data<char>(), a.data<char>() + a.bytes(), b.data<char>());
}

// Whether the file holds exactly these tensors in this order.
inline bool holds(const SafetensorsFile& file, const NamedTensors& expected) {
  if (file.tensors().size() != expected.size()) return false;
  for (size_t i = 0; i < expected.size(); ++i)
    if (file.tensors()[i].name != expected[i].name || !same_bits(file.read(expected[i].name), expected[i].tensor))
      return false;
  return true;
}

// A file as another program could write it.
inline std::string file_of(const std::string& header, const std::string& data, uint64_t length) {
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + header + data;
}
inline std::string file_of(const std::string& header, const std::string& data = "") {
  return file_of(header, data, header.size());
}

}  // namespace weft
