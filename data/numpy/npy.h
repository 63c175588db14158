// SPDX-License-Identifier: Apache-2.0
#pragma once
// NumPy's .npy: one array, as a short header and the values behind it.
//
//   read    f4 as f32, f8 as f64, f2 as f32; signed and unsigned integers as i64, but u1 as u8; b1 (bool) as u8;
//           of either byte order, and of either order of the axes: values come out row-major
//   written f32, f64, i64 and u8, as NumPy writes them itself; it has no bf16
//
// Objects, records, texts, dates, complex numbers and all other types are refused by name.
#include <functional>
#include <limits>

#include "weft/data/files/input_file.h"  // MissingInput, MalformedInput
#include "weft/data/numpy/npy_header.h"
#include "weft/engine/tensor/tensor.h"

namespace weft {

// A tensor takes at most eight times the file, whose bytes must be exactly those that the header describes.
Tensor read_npy(const std::filesystem::path& file);

// Replaces the file in one step, once all is on the disk.
void write_npy(const std::filesystem::path& file, const Tensor& tensor);

// The bytes of a .npy from the first to the last, wherever they come from.
struct NpyStream {
  std::string name;  // for errors
  uint64_t bytes;    // how many there are
  std::function<void(void* into, size_t bytes)> next;
  uint64_t max_tensor_bytes = std::numeric_limits<uint64_t>::max();
};
Tensor read_npy(const NpyStream& stream);

// Of a tensor that can be written. `whose` is for the error.
NpyHeader npy_header(const Tensor& tensor, const std::string& whose);

}  // namespace weft
