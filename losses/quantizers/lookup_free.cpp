// SPDX-License-Identifier: Apache-2.0
#include "weft/losses/quantizers/lookup_free.h"

#include <algorithm>

#include "weft/collectives/placement_conversions.h"
#include "weft/collectives/share.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/reduce.h"
#include "weft/losses/quantizers/soft_corners.h"
#include "weft/losses/quantizers/tokens.h"

namespace weft {

LookupFree::LookupFree(const LookupFreeOptions& options)
    : Quantizer("LookupFree"),
      options_(options),
      radix_("LookupFree", std::vector<int64_t>(static_cast<size_t>(std::max<int64_t>(options.bits, 0)), 2),
             MixedRadix::First::most) {
  require(options.groups > 0 && options.bits % options.groups == 0, "LookupFree: ", options.bits,
          " bits cannot be divided into ", options.groups, " equal groups");
  require(options.bits / options.groups <= 30, "LookupFree: the entropy of 2^", options.bits / options.groups,
          " codes at once; divide the bits into more groups");
  expect_positive("LookupFree: ", "scale", options.scale);
  expect_positive("LookupFree: ", "inverse temperature", options.inverse_temperature);
  require(options.chunk > 0, "LookupFree: chunks of ", options.chunk, " tokens");
}

Quantized LookupFree::apply(const Var& x, const Pass& pass, Communicator& comm, const Var& mask, Site caller) {
  const Site site = call_from(caller)
                        .number("scale", options_.scale)
                        .number("inverse temperature", options_.inverse_temperature)
                        .number("entropy weight", options_.entropy_weight)
                        .number("diversity", options_.diversity)
                        .number("commitment weight", options_.commitment_weight)
                        .count("groups", options_.groups);
  const Tokens tokens(x, options_.bits, mask);
  const Var& rows = tokens.rows();
  const Tensor zeros = Tensor::zeros(rows.shape(), rows.dtype(), rows.device());
  const Tensor bits = greater(rows.value(), zeros).to(rows.dtype());
  const Var quantized = constant_like(codes(bits).value(), rows);
  return tokens.back(straight_through(quantized, rows), radix_.number(bits),
                     pass.training ? loss(rows, quantized, tokens.total(comm, site), comm, site) : no_loss(x, comm));
}

Var LookupFree::decoded(const Var& indices) {
  return constant_like(codes(radix_.digits(indices.value(), options_.dtype)).value(), indices);
}

Var LookupFree::codes(const Tensor& bits) const { return affine(bits, 2 * options_.scale, -options_.scale); }

Var LookupFree::loss(const Var& rows, const Var& quantized, int64_t total, Communicator& comm, Site site) const {
  const Var logits = rows * (4 * options_.inverse_temperature * options_.scale);
  const Var own = share(options_.entropy_weight * entropy_of_assignments(logits), total, comm) +
                  share(options_.commitment_weight * sum(square(rows - quantized)), total * options_.bits, comm);
  const double weight = options_.entropy_weight * options_.diversity;
  if (weight == 0) return own;
  const Var everyones = all_reduce_equal(assigned_to_corners(logits, options_.groups, options_.chunk), comm, site);
  const Var diversity = entropy(everyones / static_cast<double>(std::max<int64_t>(total, 1)));
  return own - keep_on(vary(weight * diversity, comm, site), {0}, comm);
}

}  // namespace weft
