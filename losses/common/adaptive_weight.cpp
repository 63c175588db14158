// SPDX-License-Identifier: Apache-2.0
#include "weft/losses/common/adaptive_weight.h"

#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/reduce.h"

namespace weft {

Tensor adaptive_weight(const Tensor& first, const Tensor& second) {
  const auto size = [](const Tensor& gradient) { return norm(gradient.to(DType::f64)); };
  return clamp(size(first) / (size(second) + 1e-4), 0, 1e4).value();
}

}  // namespace weft
