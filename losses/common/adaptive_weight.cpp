// SPDX-License-Identifier: Apache-2.0
#include "weft/losses/common/adaptive_weight.h"

#include <algorithm>

#include "weft/engine/ops/reduce.h"

namespace weft {

double adaptive_weight(const Tensor& first, const Tensor& second) {
  const auto size = [](const Tensor& gradient) { return norm(gradient.to(DType::f64)).value().item(); };
  return std::min(size(first) / (size(second) + 1e-4), 1e4);
}

}  // namespace weft
