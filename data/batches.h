#pragma once
// Which samples a step sees. An epoch's order depends on the seed and the epoch alone: samples are named by their
// global index, so any number of ranks draw the same batches and each takes its part.
#include <span>
#include <vector>

#include "engine/tensor.h"

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

struct LabelledImages {
  Tensor images;  // u8 (count, height, width, channels)
  Tensor labels;  // i64 (count)
  int64_t count() const { return labels.size(); }
};

struct Batch {
  Tensor images;  // floating, pixels scaled to [0, 1]
  Tensor labels;  // i64
};
Batch take(const LabelledImages& data, std::span<const int64_t> samples, DType dtype = DType::f32);

}  // namespace weft
