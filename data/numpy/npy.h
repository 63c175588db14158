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
#include <string_view>

#include "weft/data/files/input_file.h"  // MissingInput, MalformedInput
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

// The text in front of the values: a Python dictionary with exactly these keys.
struct NpyHeader {
  std::string descr;  // the byte order (< little, > big, | none), then the type and its bytes, as in <f4
  bool fortran_order = false;
  Shape shape;
};

// What a .npy file begins with: version 1.0, and as many bytes as NumPy writes itself, a multiple of 64.
std::string text(const NpyHeader& header);

// Reads the dictionary alone, which begins at `offset`, and evaluates nothing. `file` is for the error.
NpyHeader parse_npy_header(std::string_view text, const std::string& file, uint64_t offset);

// Of a tensor that can be written. `whose` is for the error.
NpyHeader npy_header(const Tensor& tensor, const std::string& whose);

}  // namespace weft
