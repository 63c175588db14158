// SPDX-License-Identifier: Apache-2.0
#pragma once
// Finite scalar quantization in stages: each stage refines the result of the previous one. A tanh bounds feature j
// once, to (-r, r) with r = l / (l - 1). This range consists of l = levels[j] equal cells, whose centres are the codes:
// l equidistant numbers from -1 to 1. The residual of a stage lies within one cell, an l-th of the range, so the next
// stage has the same codes scaled by 1 / l, and q stages of l levels are one uniform quantizer of l^q levels. There is
// no table and no loss, and nothing crosses ranks.
#include "weft/losses/quantizers/residual.h"

namespace weft {

class ResidualFiniteScalar final : public ResidualQuantizer {
 public:
  // `dtype` is the type of decoded values.
  ResidualFiniteScalar(const std::vector<int64_t>& levels, int stages, const QuantizerDropout& dropout = {},
                       DType dtype = DType::f32);

 private:
  Var prepared(const Var& rows) const override;
  std::vector<double> reach_;
};

}  // namespace weft
