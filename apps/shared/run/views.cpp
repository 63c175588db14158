// SPDX-License-Identifier: Apache-2.0
#include "apps/shared/run/views.h"

#include <algorithm>

#include "apps/shared/report/picture.h"
#include "weft/engine/ops/shape_ops.h"

namespace weft {

Views views_of(const LabelledImages& data, std::span<const int64_t> samples, const Random& key,
               const Augmentation& augmentation, DType dtype) {
  const Batch taken = take(data, samples, dtype);
  const auto view = [&](uint64_t number) { return augment(taken.images, samples, key.fork(number), augmentation); };
  return {view(0), view(1), taken.labels};
}

Tensor beside_views(const LabelledImages& data, const Augmentation& augmentation, const Random& key) {
  constexpr int64_t rows = 6, views = 8;
  Vars columns;
  const std::vector<int64_t> samples = samples_between(0, std::min(rows, data.count()));
  const Tensor images = take(data, samples).images;
  for (uint64_t column = 0; column <= views; ++column) {
    const Tensor shown = column == 0 ? images : augment(images, samples, key.fork(column), augmentation);
    columns.push_back(shown.reshape(images.shape().with_inserted(1, 1)));
  }
  const Tensor all = concat(columns, 1).value();
  return grid(as_pixels(all.reshape(images.shape().with(0, images.shape()[0] * (views + 1)))), views + 1);
}

}  // namespace weft
