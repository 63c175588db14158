// SPDX-License-Identifier: Apache-2.0
#pragma once
// The function that products_of_kind.cpp is for each kind of CPU.
#include <cstddef>

namespace weft::verify {

struct Operand {
  const double* values;  // row by row
  std::ptrdiff_t rows, columns;
  bool transposed;
};
using MakeProduct = void(const Operand& a, const Operand& b, double* y);

MakeProduct product_base, product_v3, product_v4;
MakeProduct& fastest_product();  // that this machine runs

}  // namespace weft::verify
