// SPDX-License-Identifier: Apache-2.0
#include "weft/engine/tape/waiting_sums.h"

#include <algorithm>

#include "weft/engine/kernels/backend.h"

namespace weft {

void WaitingSums::add(Addition sum) {
  if (!sums_.empty() && sums_[0].to.device() != sum.to.device()) compute();
  bytes_ += static_cast<size_t>(sum.to.size()) * size_of(sum.to.dtype());
  sums_.push_back(std::move(sum));
  if (bytes_ > most_bytes) compute();
}

void WaitingSums::compute() {
  if (sums_.empty()) return;
  backend(sums_[0].to.device()).add_all(sums_);
  drop();
}

void WaitingSums::compute(const Tensor& sum) {
  const bool waits =
      std::any_of(sums_.begin(), sums_.end(), [&](const Addition& each) { return each.to.data() == sum.data(); });
  if (waits) compute();
}

void WaitingSums::drop() {
  sums_.clear();
  bytes_ = 0;
}

}  // namespace weft
