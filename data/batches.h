// SPDX-License-Identifier: Apache-2.0
#pragma once
// The order in which a training visits samples. The order of an epoch depends only on the seed and the epoch, and
// samples are identified by their global index. So any number of ranks draw the same batches, and each takes its part.
#include <span>
#include <string>
#include <vector>

#include "weft/engine/tensor/tensor.h"

namespace weft {

class Epoch {
 public:
  Epoch(int64_t samples, int64_t batch_size, uint64_t seed, uint64_t epoch);

  int64_t steps() const;                               // the last batch may be smaller
  std::span<const int64_t> batch(int64_t step) const;  // global sample indices
  std::span<const int64_t> order() const { return order_; }

 private:
  std::vector<int64_t> order_;
  int64_t batch_size_;
};

// An endless sequence of batches, epoch after epoch.
class Batches {
 public:
  Batches(int64_t samples, int64_t batch_size, uint64_t seed);

  std::span<const int64_t> next();  // global sample indices, valid until the next call
  int64_t steps_per_epoch() const { return epoch_.steps(); }

  // The position in words, for a checkpoint: "epoch 2 batch 17 of 60000 samples, 128 at a time, seed 1".
  std::string position() const;
  void seek(const std::string& position);  // MalformedInput if it is none, or of other data

 private:
  std::string description() const;

  int64_t samples_, batch_size_;
  uint64_t seed_, number_ = 0;  // number_ is that of the epoch
  int64_t drawn_ = 0;           // the number of batches drawn in this epoch
  Epoch epoch_;
};

struct LabelledImages {
  Tensor images;  // u8 (count, height, width, channels)
  Tensor labels;  // i64 (count)
  int64_t count() const { return labels.size(); }
};

LabelledImages subset(const LabelledImages& data, std::span<const int64_t> samples);  // a copy

struct Batch {
  Tensor images;  // floating, pixels scaled to [0, 1]
  Tensor labels;  // i64
};
std::vector<int64_t> samples_between(int64_t first, int64_t last);  // excluding `last`
Batch take(const LabelledImages& data, std::span<const int64_t> samples, DType dtype = DType::f32);

}  // namespace weft
