// SPDX-License-Identifier: Apache-2.0
#include "weft/models/stages.h"

#include <algorithm>

#include "weft/engine/ops/images.h"
#include "weft/engine/ops/reduce.h"
#include "weft/engine/ops/shape_ops.h"

namespace weft {

void Stages::add(std::unique_ptr<Layer> stage) {
  register_module(*stage);
  stages_.push_back(std::move(stage));
}

Var Stages::apply(const Var& x, const Pass& pass) {
  Vars features;
  Var y = x;
  for (const auto& stage : stages_) {
    y = (*stage)(y, pass);
    const Shape& s = y.shape();
    features.push_back(maxima_of_parts(y, parts_));
    features.push_back(mean(reshape(y, {s[0], s[1] * s[2], s[3]}), 1));
  }
  return concat(features, 1);
}

Var maxima_of_parts(const Var& x, int64_t parts) {
  const YX size = {x.shape()[1], x.shape()[2]}, count = {std::min(parts, size.y), std::min(parts, size.x)};
  const YX stride = {size.y / count.y, size.x / count.x};
  const YX kernel = {size.y - stride.y * (count.y - 1), size.x - stride.x * (count.x - 1)};
  return flatten(max_pool2d(x, kernel, {.stride = stride}));
}

}  // namespace weft
