#pragma once
// Lookup-free quantization (MAGVIT-v2): the codes are the corners {-scale, scale}^bits of a cube, the nearest is found
// by signs, and there is no table. With q(x) the corner of token x, p(. | x) ~ exp(-inverse_temperature |x - .|^2) its
// soft assignment, and means over the N unmasked tokens of all ranks, the whole loss is
//
//   entropy_weight (mean H(p(. | x)) - diversity H(mean p(. | x))) + commitment_weight mean |x - q(x)|^2 / bits
//
// Across ranks go the number of tokens and, since H(mean p) is not linear in the mean, the sums of p over all tokens:
// groups 2^(bits / groups) numbers in one all_reduce. All ranks then have the same H, so backward sends one scalar.
// With several groups of bits H(mean p) is that of each group alone, summed: an upper bound, much cheaper. No gradient
// goes through q.
#include "losses/quantizers/mixed_radix.h"
#include "losses/quantizers/quantizer.h"

namespace weft {

struct LookupFreeOptions {
  int64_t bits;
  int64_t groups = 1;  // a divisor of bits
  double scale = 1;
  double inverse_temperature = 100;
  double entropy_weight = 0.1, diversity = 1, commitment_weight = 0.25;
  int64_t chunk = 4096;      // tokens whose assignments are in memory together
  DType dtype = DType::f32;  // of what decode gives
};

class LookupFree final : public Quantizer {
 public:
  explicit LookupFree(const LookupFreeOptions& options);

 private:
  Quantized apply(const Var& x, const Pass& pass, Communicator& comm, const Var& mask, Site caller) override;
  Var decoded(const Var& indices) override;  // the first bit of an index counts most
  Var codes(const Tensor& bits) const;
  Var loss(const Var& rows, const Var& quantized, int64_t total, Communicator& comm, Site site) const;

  LookupFreeOptions options_;
  MixedRadix radix_;
};

}  // namespace weft
