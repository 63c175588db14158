// SPDX-License-Identifier: Apache-2.0
#pragma once
// Two random views of each of some samples: what a contrastive network compares.
#include "weft/data/augment.h"
#include "weft/data/batches.h"

namespace weft {

struct Views {
  Tensor first, second;  // (samples, height, width, channels)
  Tensor labels;         // on the host
  std::vector<Tensor*> tensors() { return {&first, &second, &labels}; }
  Views to(Device device) const { return {first.to(device), second.to(device), labels}; }
};
Views views_of(const LabelledImages& data, std::span<const int64_t> samples, const Random& key,
               const Augmentation& augmentation, DType dtype);

// Rows of pictures, each a training picture and random views of it: for Run::picture.
Tensor beside_views(const LabelledImages& data, const Augmentation& augmentation, const Random& key);

}  // namespace weft
