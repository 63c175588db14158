// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <algorithm>

#include "tools/weft/truth/truth.h"
#include "weft/engine/tensor/tensor.h"

namespace weft::verify {

// Rows of the last axis; a vector is one row.
inline Matrix matrix_of(const Tensor& tensor) {
  const std::vector<double> values = tensor.to(DType::f64).values();
  const int axes = tensor.shape().rank();
  const Eigen::Index columns = axes == 0 ? 1 : tensor.shape()[axes - 1];
  Matrix result(columns == 0 ? 1 : static_cast<Eigen::Index>(values.size()) / columns, columns);
  std::copy(values.begin(), values.end(), result.data());
  return result;
}

}  // namespace weft::verify
