// SPDX-License-Identifier: Apache-2.0
#include "weft/losses/assignment/swapped_prediction.h"

#include <algorithm>

#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/normalize.h"
#include "weft/engine/ops/reduce.h"

namespace weft {

Var swapped_cross_entropy(std::span<const Tensor> targets, std::span<const Var> views) {
  require(swapped_pairs(targets.size(), views.size()) > 0, targets.size(), " views with targets and ", views.size(),
          " in all have no pair of different views");
  for (const Var& view : views)
    for (const Tensor& target : targets)
      require(view.shape().rank() == 2 && view.shape() == target.shape(),
              "all views are (samples, classes) alike, but there are ", target.shape(), " and ", view.shape());
  Var total;
  for (size_t v = 0; v < views.size(); ++v) {
    Var others;
    for (size_t i = 0; i < targets.size(); ++i)
      if (i != v) others = others.defined() ? others + targets[i] : Var(targets[i]);
    if (!others.defined()) continue;
    const Var term = sum(constant_like(others.value(), views[v]) * log_softmax(views[v]));
    total = total.defined() ? total + term : term;
  }
  return -total;
}

int64_t swapped_pairs(size_t targets, size_t views) {
  return static_cast<int64_t>(targets * views - std::min(targets, views));
}

}  // namespace weft
