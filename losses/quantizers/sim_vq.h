#pragma once
// SimVQ: the codes are a frozen random table times a learnable linear map, so a gradient to any code moves all of them,
// and none dies. With c(x) the nearest code, sg what gets no gradient, and means over the unmasked tokens of all ranks,
// the whole loss is
//
//   mean |sg(x) - c(x)|^2 / dim + commitment_weight mean |x - sg(c(x))|^2 / dim
//
// Only the number of tokens crosses ranks; the gradient of the map is summed with those of the other parameters.
#include "engine/nn/init.h"
#include "losses/quantizers/quantizer.h"
#include "losses/quantizers/rotation.h"

namespace weft {

struct SimVqOptions {
  int64_t dim, codes;
  double commitment_weight = 0.25;
  Through through = Through::straight;
};

class SimVq final : public Quantizer {
 public:
  SimVq(const std::string& name, const SimVqOptions& options, const Init& init);

  Parameter table;  // (codes, dim), a buffer: normal, with the deviation dim^-1/2
  Parameter map;    // (dim, dim)

 private:
  Quantized apply(const Var& x, const Pass& pass, Communicator& comm, const Var& mask, Site caller) override;
  Var decoded(const Var& indices) override;
  Var codes(const Var& beside) const;
  SimVqOptions options_;
};

}  // namespace weft
