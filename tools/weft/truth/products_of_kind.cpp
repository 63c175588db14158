// SPDX-License-Identifier: Apache-2.0
// Compiled once for each kind of CPU (tools/weft/meson.build), each time with another name for the function.
#include <Eigen/Core>

#include "tools/weft/truth/product_kinds.h"

void weft::verify::WEFT_PRODUCT(const Operand& a, const Operand& b, double* y) {
  using Rows = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  const Eigen::Map<const Rows> left(a.values, a.rows, a.columns), right(b.values, b.rows, b.columns);
  Eigen::Map<Rows> result(y, a.transposed ? a.columns : a.rows, b.transposed ? b.rows : b.columns);
  if (a.transposed)
    result.noalias() = left.transpose() * right;
  else if (b.transposed)
    result.noalias() = left * right.transpose();
  else
    result.noalias() = left * right;
}
