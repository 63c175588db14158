// SPDX-License-Identifier: Apache-2.0
#include "apps/shared/evaluation/code_usage.h"

#include <algorithm>
#include <functional>

#include "weft/engine/kernels/scalar_ops.h"
#include "weft/engine/maths/maths.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/index.h"

namespace weft {

CodeUsage::CodeUsage(int64_t parts, int64_t codes) : parts_(parts), codes_(codes) {}

void CodeUsage::add(const Tensor& indices) {
  Tensor codes = indices.reshape({indices.size() / parts_, parts_});
  if (parts_ > 1) {
    std::vector<double> first;  // of each part, among the codes of all
    for (int64_t part = 0; part < parts_; ++part) first.push_back(static_cast<double>(part * codes_));
    const Tensor begins = Tensor::from({parts_}, first, DType::i64, codes.device());
    Tensor numbers = Tensor::like(codes);
    backend(codes.device()).binary_along(Binary::Add, codes, begins, Along(codes.shape(), 1), numbers);
    codes = numbers;
  }
  const Tensor ones = Tensor::full(codes.shape(), 1, DType::f64, codes.device());
  const Var found = scatter_add_rows(ones, codes, parts_ * codes_);
  counts_ = counts_.defined() ? (Var(counts_) + found).value() : found.value();
}

void CodeUsage::over(Communicator& comm, Site site) {
  if (!counts_.defined()) counts_ = Tensor::zeros({parts_ * codes_}, DType::f64);
  comm.all_reduce(counts_, counts_, ReduceOp::sum, site);
  copy_ = std::make_shared<HostCopy>(counts_);
}

std::vector<double> CodeUsage::most_used_first() const {
  std::vector<double> sorted = counts();
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  return sorted;
}

double CodeUsage::perplexity() const {
  const std::vector<double> counts = this->counts();
  double entropy = 0, all = 0;
  for (const double count : counts) all += count;
  all /= static_cast<double>(parts_);  // every token has one index in each part
  for (const double count : counts)
    if (count > 0) entropy -= count / all * maths::log(count / all);
  return maths::exp(entropy / static_cast<double>(parts_));
}

int64_t CodeUsage::dead() const {
  const std::vector<double> counts = this->counts();
  return std::count(counts.begin(), counts.end(), 0);
}

}  // namespace weft
