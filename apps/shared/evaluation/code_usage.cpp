// SPDX-License-Identifier: Apache-2.0
#include "apps/shared/evaluation/code_usage.h"

#include <algorithm>
#include <functional>

#include "weft/engine/maths/maths.h"

namespace weft {

CodeUsage::CodeUsage(int64_t parts, int64_t codes)
    : parts_(static_cast<size_t>(parts)), codes_(static_cast<size_t>(codes)), counts_(parts_ * codes_) {}

void CodeUsage::add(const Tensor& indices) {
  const Tensor all = indices.to(Device::cpu);
  const auto* index = all.data<int64_t>();
  for (size_t i = 0; i < static_cast<size_t>(all.size()); ++i)
    ++counts_[i % parts_ * codes_ + static_cast<size_t>(index[i])];
}

void CodeUsage::over(Communicator& comm, Site site) {
  const Shape shape = {static_cast<int64_t>(counts_.size())};
  counts_ = comm.all_reduce(Tensor::from(shape, counts_, DType::f64), ReduceOp::sum, site).values();
}

std::vector<double> CodeUsage::most_used_first() const {
  std::vector<double> sorted = counts_;
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  return sorted;
}

double CodeUsage::perplexity() const {
  double entropy = 0, all = 0;
  for (const double count : counts_) all += count;
  all /= static_cast<double>(parts_);  // every token has one index in each part
  for (const double count : counts_)
    if (count > 0) entropy -= count / all * maths::log(count / all);
  return maths::exp(entropy / static_cast<double>(parts_));
}

int64_t CodeUsage::dead() const { return std::count(counts_.begin(), counts_.end(), 0); }

}  // namespace weft
