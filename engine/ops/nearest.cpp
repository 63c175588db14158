// SPDX-License-Identifier: Apache-2.0
#include "weft/engine/ops/nearest.h"

#include "weft/engine/kernels/backend.h"

namespace weft {

Tensor nearest_rows(const Tensor& x, const Tensor& codes) {
  require(x.shape().rank() == 2 && codes.shape().rank() == 2 && x.shape()[1] == codes.shape()[1],
          "nearest_rows: rows and codes of one width are needed, not ", x.shape(), " and ", codes.shape());
  require(is_floating(x.dtype()) && x.dtype() == codes.dtype() && x.device() == codes.device(),
          "nearest_rows: rows and codes of one floating type on one device are needed, not ", x.dtype(), " on ",
          x.device(), " and ", codes.dtype(), " on ", codes.device());
  require(codes.shape()[0] > 0, "nearest_rows: there are no codes to choose from in ", codes.shape());
  Tensor indices({x.shape()[0]}, DType::i64, x.device());
  if (indices.size() > 0) backend(x.device()).nearest_rows(x, codes, indices);
  return indices;
}

}  // namespace weft
