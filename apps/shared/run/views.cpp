// SPDX-License-Identifier: Apache-2.0
#include "apps/shared/run/views.h"

#include <algorithm>

#include "apps/shared/report/picture.h"
#include "weft/engine/ops/shape_ops.h"

namespace weft {
namespace {

int64_t first_of(std::span<const int64_t> samples) { return samples.empty() ? -1 : samples[0]; }

}  // namespace

Views::Views(const LabelledImages& data, const LocalBatch& batch, const Random& key, const Augmentation& augmentation,
             DType dtype) {
  for (const MicroBatch& micro : batch.micro_batches) {
    const Batch taken = take(data, micro.samples, dtype);
    const auto view = [&](uint64_t number) {
      return augment(taken.images, micro.samples, key.fork(number), augmentation);
    };
    by_first_sample_[first_of(micro.samples)] = {view(0), view(1), taken.labels};
  }
}

const TwoViews& Views::of(std::span<const int64_t> samples) const { return by_first_sample_.at(first_of(samples)); }

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
