// SPDX-License-Identifier: Apache-2.0
#include "weft/losses/quantizers/codebook/code_sums.h"

#include <cmath>

#include "weft/collectives/share.h"
#include "weft/engine/ops/exact.h"
#include "weft/engine/ops/reduce.h"

namespace weft {

CodeSums::CodeSums(int64_t codes, int64_t dim, Device device)
    : codes_(codes), dim_(dim), memory_({exact_shape({codes, dim}).size() + codes}, DType::f64, device) {}

void CodeSums::add(const Tensor& tokens, const Tensor& indices) {
  const int64_t count = tokens.shape()[0], each = codes_ * dim_;
  const Tensor parts = exact_parts(tokens);
  const int64_t kinds = parts.shape()[0];
  const Indices own({"CodeSums", "code"}, indices, codes_);
  Backend& device = backend(memory_.device());
  const auto accumulate = [&](const Tensor& terms, int64_t begin, int64_t end) {
    Tensor sum = memory_.slice(begin, end), of_codes = tokens_ == 0 ? sum : Tensor::like(sum);
    device.scatter_add_rows(terms, own, of_codes);
    if (tokens_ > 0) device.accumulate(1, of_codes, sum);
  };
  for (int64_t i = 0; i < kinds; ++i)
    accumulate(parts.slice(i, i + 1).reshape({count, dim_}), i * each, (i + 1) * each);
  accumulate(Tensor::full({count}, 1, DType::f64, tokens.device()), kinds * each, memory_.size());
  tokens_ += count;
}

CodeSums::Total CodeSums::over(Communicator& comm, DType dtype, Site site) const {
  const Tensor mine = tokens_ > 0 ? memory_ : Tensor::zeros(memory_.shape(), DType::f64, memory_.device());
  const Tensor all = comm.all_reduce(mine, ReduceOp::sum, site);
  const Shape parts = exact_shape({codes_, dim_});
  const Tensor counts = all.slice(parts.size(), all.size());
  constexpr double limit = 0x1p20;
  const double tokens = sum_over_ranks(static_cast<double>(tokens_), comm, site);
  const double most = tokens <= limit ? tokens : max(counts).value().item();  // few tokens spare a wait for a card
  require(most <= limit, "CodeSums: ", most, " tokens of one code; at most 2^20 can be added up exactly");
  const Tensor sums = exact_total(all.slice(0, parts.size()).reshape(parts), dtype);
  return {counts.to(dtype), sums, static_cast<int64_t>(tokens),
          std::make_shared<HostCopy>(weft::sum(Var(sums)).value())};
}

void CodeSums::Total::must_be_exact() const {
  require(std::isfinite(sum->values().item()),
          "CodeSums: a token is not finite, or not below 2^24; more cannot be added up exactly");
}

}  // namespace weft
