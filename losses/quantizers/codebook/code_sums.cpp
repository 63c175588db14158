// SPDX-License-Identifier: Apache-2.0
#include "weft/losses/quantizers/codebook/code_sums.h"

#include <cmath>
#include <utility>

#include "weft/collectives/share.h"
#include "weft/engine/ops/exact.h"
#include "weft/engine/ops/reduce.h"

namespace weft {

CodeSums::CodeSums(int64_t codes, int64_t dim, Device device)
    : codes_(codes),
      parts_(exact_shape({codes, dim})),
      memory_(Tensor::zeros({parts_.size() + codes}, DType::f64, device)) {}

void CodeSums::add(const Tensor& tokens, const Tensor& indices) {
  Tensor sums = memory_.slice(0, parts_.size()), counts = memory_.slice(parts_.size(), memory_.size());
  backend(memory_.device()).add_exact_rows(tokens, {{"CodeSums", "code"}, indices, codes_}, sums, counts);
  tokens_ += tokens.shape()[0];
}

CodeSums::Total CodeSums::over(Communicator& comm, DType dtype, Site site) {
  Tensor all = std::exchange(memory_, {});
  comm.all_reduce(all, all, ReduceOp::sum, site);
  const Tensor counts = all.slice(parts_.size(), all.size());
  constexpr double limit = 0x1p20;
  const double tokens = sum_over_ranks(static_cast<double>(tokens_), comm, site);
  const double most = tokens <= limit ? tokens : max(counts).value().item();  // few tokens spare a wait for a card
  require(most <= limit, "CodeSums: ", most, " tokens of one code; at most 2^20 can be added up exactly");
  const Tensor sums = exact_total(all.slice(0, parts_.size()).reshape(parts_), dtype);
  return {counts.to(dtype), sums, static_cast<int64_t>(tokens),
          std::make_shared<HostCopy>(weft::sum(Var(sums)).value())};
}

void CodeSums::Total::must_be_exact() const {
  require(std::isfinite(sum->values().item()),
          "CodeSums: a token is not finite, or not below 2^24; more cannot be added up exactly");
}

}  // namespace weft
