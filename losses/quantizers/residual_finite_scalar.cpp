// SPDX-License-Identifier: Apache-2.0
#include "weft/losses/quantizers/residual_finite_scalar.h"

#include "weft/engine/maths/maths.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/reduce.h"
#include "weft/losses/quantizers/mixed_radix.h"
#include "weft/losses/quantizers/tokens.h"

namespace weft {
namespace {

using Features = std::vector<double>;

Features each(const std::vector<int64_t>& levels, auto f) {
  Features values;
  for (const int64_t level : levels) values.push_back(f(static_cast<double>(level)));
  return values;
}

// One stage, for unmasked tokens. The code of digit d is (2 d / (l - 1) - 1) scale.
class Stage final : public Quantizer {
 public:
  Stage(const std::vector<int64_t>& levels, int stage, DType dtype)
      : Quantizer("FiniteScalar"),
        radix_("ResidualFiniteScalar", levels, MixedRadix::First::least),
        last_(each(levels, [](double l) { return l - 1; })),
        half_(each(levels, [](double l) { return (l - 1) / 2; })),
        scale_(each(levels, [stage](double l) { return maths::pow(l, -stage); })),
        dtype_(dtype) {}

 private:
  Quantized apply(const Var& rows, const Pass&, Communicator& comm, const Var&, Site) override {
    const Var half = per_feature(half_, rows), last = repeat(per_feature(last_, rows), 0, rows.shape()[0]);
    const Var place = add_along(mul_along(div_along(detach(rows), per_feature(scale_, rows), -1), half, -1), half, -1);
    const Var digits = relu(minimum(round(place), last)), index = constant_like(radix_.number(digits.value()), rows);
    return {straight_through(codes(digits), rows), index, no_loss(rows, comm)};
  }

  Var decoded(const Var& indices) override {
    return codes(constant_like(radix_.digits(indices.value(), dtype_), indices));
  }
  Var codes(const Var& digits) const {
    const Var half = per_feature(half_, digits);
    return mul_along(div_along(sub_along(digits, half, -1), half, -1), per_feature(scale_, digits), -1);
  }

  MixedRadix radix_;
  Features last_, half_, scale_;
  DType dtype_;
};

ResidualQuantizer::Layers in_stages(const std::vector<int64_t>& levels, int stages, DType dtype) {
  ResidualQuantizer::Layers layers;
  for (int stage = 0; stage < stages; ++stage) layers.push_back(std::make_unique<Stage>(levels, stage, dtype));
  return layers;
}

}  // namespace

ResidualFiniteScalar::ResidualFiniteScalar(const std::vector<int64_t>& levels, int stages,
                                           const QuantizerDropout& dropout, DType dtype)
    : ResidualQuantizer(in_stages(levels, stages, dtype), dropout, "ResidualFiniteScalar"),
      reach_(each(levels, [](double l) { return l / (l - 1); })) {}

Var ResidualFiniteScalar::prepared(const Var& rows) const {
  require(rows.shape()[1] == static_cast<int64_t>(reach_.size()), "tokens have ", rows.shape()[1],
          " features, but there are levels for ", reach_.size());
  const Var reach = per_feature(reach_, rows);
  return mul_along(tanh(div_along(rows, reach, -1)), reach, -1);
}

}  // namespace weft
