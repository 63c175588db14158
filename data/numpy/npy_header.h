// SPDX-License-Identifier: Apache-2.0
#pragma once
// The text in front of the values of a .npy file: a Python dictionary with exactly these keys.
#include <string>
#include <string_view>

#include "weft/engine/tensor/shape.h"

namespace weft {

struct NpyHeader {
  std::string descr;  // the byte order (< little, > big, | none), then the type and its bytes, as in <f4
  bool fortran_order = false;
  Shape shape;
};

// What a .npy file begins with: version 1.0, and as many bytes as NumPy writes itself, a multiple of 64.
std::string text(const NpyHeader& header);

// Reads the dictionary alone, which begins at `offset`, and evaluates nothing. `file` is for the error.
NpyHeader parse_npy_header(std::string_view text, const std::string& file, uint64_t offset);

}  // namespace weft
