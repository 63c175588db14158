// SPDX-License-Identifier: Apache-2.0
#include "weft/engine/ops/exact.h"

#include <array>

#include "weft/engine/kernels/backend.h"

namespace weft {

void add_exactly(const Tensor& x, Tensor& sum) {
  require(is_floating(x.dtype()), "add_exactly: floating values, not ", x.dtype());
  require(sum.dtype() == DType::f64 && sum.shape() == exact_shape(x.shape()) && sum.device() == x.device(),
          "add_exactly: to a sum of values ", x.shape(), " on ", x.device(), " belongs f64 ", exact_shape(x.shape()),
          " there, not ", sum.dtype(), " ", sum.shape(), " on ", sum.device());
  backend(x.device()).add_exact_parts(std::array{ExactRun{x}}, sum);
}

Tensor exact_total(const Tensor& parts, DType dtype) {
  require(parts.dtype() == DType::f64 && parts.shape().rank() > 0 && parts.shape()[0] == 4,
          "exact_total: parts are f64 (4, ...), not ", parts.dtype(), " ", parts.shape());
  Tensor total(parts.shape().without(0), dtype == DType::f32 ? dtype : DType::f64, parts.device());
  backend(parts.device()).exact_total(parts, total);
  return total.to(dtype);
}

}  // namespace weft
