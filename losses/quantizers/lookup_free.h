// SPDX-License-Identifier: Apache-2.0
#pragma once
// Lookup-free quantization (MAGVIT-v2): rounds a token to the nearest corner {-scale, scale}^bits of a cube by the
// signs of its features, without a table. With q(x) the corner of token x, its soft assignment
// p(. | x) ~ exp(-inverse_temperature |x - .|^2), and means over the unmasked tokens of all ranks, the whole loss is
//
//   entropy_weight (mean H(p(. | x)) - diversity H(mean p(. | x))) + commitment_weight mean |x - q(x)|^2 / bits
//
// The number of tokens crosses ranks, and, since H(mean p) is not linear in the mean, the sum of p over all tokens:
// groups 2^(bits / groups) numbers in one all_reduce. All ranks then have the same H, so one scalar crosses in
// backward. With several groups of bits, H(mean p) is the sum of the groups' entropies, an upper bound that is much
// cheaper. q has no gradient.
#include "weft/losses/quantizers/mixed_radix.h"
#include "weft/losses/quantizers/quantizer.h"

namespace weft {

struct LookupFreeOptions {
  int64_t bits;
  int64_t groups = 1;  // a divisor of bits
  double scale = 1;
  double inverse_temperature = 100;
  double entropy_weight = 0.1, diversity = 1, commitment_weight = 0.25;
  int64_t chunk = 4096;      // tokens whose assignments are in memory at a time
  DType dtype = DType::f32;  // of decoded values
};

class LookupFree final : public Quantizer {
 public:
  explicit LookupFree(const LookupFreeOptions& options);

 private:
  Quantized apply(const Var& x, const Pass& pass, Communicator& comm, const Var& mask, Site caller) override;
  Var decoded(const Var& indices) override;  // the first bit is the most significant
  Var codes(const Tensor& bits) const;
  Var loss(const Var& rows, const Var& quantized, int64_t total, Communicator& comm, Site site) const;

  LookupFreeOptions options_;
  MixedRadix radix_;
};

}  // namespace weft
