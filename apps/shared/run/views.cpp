// SPDX-License-Identifier: Apache-2.0
#include "apps/shared/run/views.h"

namespace weft {
namespace {

int64_t first_of(std::span<const int64_t> samples) { return samples.empty() ? -1 : samples[0]; }

}  // namespace

Views::Views(const LabelledImages& data, const LocalBatch& batch, const Random& key, const Augmentation& augmentation,
             DType dtype) {
  for (const MicroBatch& micro : batch.micro_batches) {
    const auto [images, labels] = take(data, micro.samples, dtype);
    const auto view = [&](uint64_t number) { return augment(images, micro.samples, key.fork(number), augmentation); };
    by_first_sample_[first_of(micro.samples)] = {view(0), view(1), labels};
  }
}

const TwoViews& Views::of(std::span<const int64_t> samples) const { return by_first_sample_.at(first_of(samples)); }

}  // namespace weft
