// SPDX-License-Identifier: Apache-2.0
#pragma once
// Two random views of the samples of a batch: what a contrastive network compares.
#include <map>

#include "weft/data/augment.h"
#include "weft/data/batches.h"
#include "weft/optim/training.h"

namespace weft {

struct TwoViews {
  Tensor first, second;  // (samples, height, width, channels)
  Tensor labels;
};

class Views {
 public:
  Views() = default;
  Views(const LabelledImages& data, const LocalBatch& batch, const Random& key, const Augmentation& augmentation,
        DType dtype);
  const TwoViews& of(std::span<const int64_t> samples) const;  // of a micro-batch

 private:
  std::map<int64_t, TwoViews> by_first_sample_;
};

// Rows of pictures, each a training picture and random views of it: for Run::picture.
Tensor beside_views(const LabelledImages& data, const Augmentation& augmentation, const Random& key);

}  // namespace weft
