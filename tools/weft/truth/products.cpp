// SPDX-License-Identifier: Apache-2.0
#include "tools/weft/truth/products.h"

#include "tools/weft/truth/product_kinds.h"

namespace weft::verify {

Matrix product(const Matrix& a, const Matrix& b, Transposed transposed) {
  const bool left = transposed == Transposed::left, right = transposed == Transposed::right;
  Matrix y(left ? a.cols() : a.rows(), right ? b.rows() : b.cols());
  fastest_product()({a.data(), a.rows(), a.cols(), left}, {b.data(), b.rows(), b.cols(), right}, y.data());
  return y;
}

}  // namespace weft::verify
