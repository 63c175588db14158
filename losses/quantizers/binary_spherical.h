// SPDX-License-Identifier: Apache-2.0
#pragma once
// Binary spherical quantization: projects tokens onto the unit sphere, u = x / |x|, and rounds each to the nearest
// corner {-1, 1}^bits / sqrt(bits) of the cube inside it. With soft assignments p(c | u) ~ exp(temperature u.c) and
// means over the unmasked tokens of all ranks, the whole loss is
//
//   entropy_weight (mean H(p(. | u)) - diversity H(mean p(. | u))) + commitment_weight mean |u - q(u)|^2 / bits
//
// where H(mean p) is the sum of the entropies of `groups` groups of bits; by default every bit is a group, as in the
// paper. The same numbers cross ranks as in LookupFree, which this class calls: two per bit by default. The gradient of
// the values reaches x through the projection.
#include "weft/losses/quantizers/lookup_free.h"

namespace weft {

struct BinarySphericalOptions {
  int64_t bits;
  int64_t groups = bits;
  double temperature = 100;
  double entropy_weight = 0.1, diversity = 1, commitment_weight = 0;
  DType dtype = DType::f32;  // of decoded values
};

class BinarySpherical final : public Quantizer {
 public:
  explicit BinarySpherical(const BinarySphericalOptions& options);

 private:
  Quantized apply(const Var& x, const Pass& pass, Communicator& comm, const Var& mask, Site caller) override;
  Var decoded(const Var& indices) override { return decoded_part(corners_, indices); }

  int64_t bits_;
  LookupFree corners_;
};

}  // namespace weft
