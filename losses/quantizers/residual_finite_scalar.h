#pragma once
// Finite scalar quantization in stages. Feature j is bounded once, by a tanh, to (-r, r) with r = l / (l - 1), which l
// = levels[j] equal cells fill whose centres are the codes: l equidistant numbers from -1 to 1. What a stage leaves is
// within one cell, an l-th of the range, so the next stage has the same codes scaled by 1 / l: q stages of l levels are
// one uniform quantizer of l^q levels. No table, no loss, and nothing crosses ranks.
#include "losses/quantizers/residual.h"

namespace weft {

class ResidualFiniteScalar final : public ResidualQuantizer {
 public:
  // `dtype` is that of what decode gives.
  ResidualFiniteScalar(const std::vector<int64_t>& levels, int stages, const QuantizerDropout& dropout = {},
                       DType dtype = DType::f32);

 private:
  Var prepared(const Var& rows) const override;
  std::vector<double> reach_;
};

}  // namespace weft
