// SPDX-License-Identifier: Apache-2.0
#pragma once
// SimVQ: vector quantization whose codes are a fixed random table times a learnable linear map, so that a gradient to
// any code moves all of them and none stays unused. With c(x) the nearest code, sg for a value without a gradient, and
// means over the unmasked tokens of all ranks, the whole loss is
//
//   mean |sg(x) - c(x)|^2 / dim + commitment_weight mean |x - sg(c(x))|^2 / dim
//
// Only the number of tokens crosses ranks. The gradient of the map is summed over ranks like that of any parameter.
#include "weft/engine/nn/init.h"
#include "weft/losses/quantizers/codebook/rotation.h"
#include "weft/losses/quantizers/quantizer.h"

namespace weft {

struct SimVqOptions {
  int64_t dim, codes;
  double commitment_weight = 0.25;
  Through through = Through::straight;
};

class SimVq final : public Quantizer {
 public:
  SimVq(const std::string& name, const SimVqOptions& options, const Init& init);

  Parameter table;  // (codes, dim), a buffer: normally distributed with standard deviation dim^-1/2
  Parameter map;    // (dim, dim)

 private:
  Quantized apply(const Var& x, const Pass& pass, Communicator& comm, const Var& mask, Site caller) override;
  Var decoded(const Var& indices) override;
  Var codes(const Var& beside) const;
  SimVqOptions options_;
};

}  // namespace weft
