// SPDX-License-Identifier: Apache-2.0
#pragma once
// Sums of two gradients each, which wait until something reads one of them. One kernel then computes all, since on a
// card a launch costs more than a small sum.
#include <vector>

#include "weft/engine/kernels/addition.h"

namespace weft {

class WaitingSums {
 public:
  // No other kernel may write to these tensors before the sum is computed; no sum that waits is one of its terms.
  void add(Addition sum);
  void compute();                   // all
  void compute(const Tensor& sum);  // all, if this is among them
  void drop();

 private:
  // Many small terms wait at little cost in memory; a large one gains nothing.
  static constexpr size_t most_bytes = size_t{1} << 20;

  std::vector<Addition> sums_;
  size_t bytes_ = 0;  // of one term of each
};

}  // namespace weft
