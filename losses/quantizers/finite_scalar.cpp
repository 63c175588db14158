// SPDX-License-Identifier: Apache-2.0
#include "weft/losses/quantizers/finite_scalar.h"

#include "weft/engine/maths/maths.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/losses/quantizers/tokens.h"

namespace weft {

// Rounds to the nearest whole number, and halves upwards. x is constant.
static Var rounded_up(const Var& x) {
  const Var nearest = round(x);
  return where(constant_like(equal((x - nearest).value(), Tensor::full(x.shape(), 0.5, x.dtype(), x.device())), x),
               nearest + 1, nearest);
}

// The tanh reaches a little beyond the outermost levels, so that rounding reaches them, and the shift maps zero to
// zero. Symmetric levels need no such margin, since the outermost ones are the limits of the tanh.
FiniteScalar::FiniteScalar(const std::vector<int64_t>& levels, DType dtype, bool preserve_symmetry)
    : Quantizer("FiniteScalar"),
      radix_("FiniteScalar", levels, MixedRadix::First::least),
      dtype_(dtype),
      symmetric_(preserve_symmetry) {
  for (const int64_t level : levels) {
    const double widest = static_cast<double>(level - 1) / 2, reach = preserve_symmetry ? widest : widest * 1.001,
                 offset = level % 2 == 0 && !preserve_symmetry ? 0.5 : 0;
    reach_.push_back(reach);
    offset_.push_back(offset);
    shift_.push_back(maths::log((reach + offset) / (reach - offset)) / 2);  // atanh
    half_.push_back(preserve_symmetry ? widest : static_cast<double>(level / 2));
  }
}

Quantized FiniteScalar::apply(const Var& x, const Pass&, Communicator& comm, const Var& mask, Site) {
  const Tokens tokens(x, static_cast<int64_t>(half_.size()), mask);
  const Var continuous = bounded(tokens.rows()), half = per_feature(half_, continuous);
  const Var places = detach(add_along(continuous, half, -1));  // whole numbers are digits
  const Var digits = symmetric_ ? rounded_up(places) : add_along(round(detach(continuous)), half, -1);
  const Var values = straight_through(codes(digits), div_along(continuous, half, -1));
  return tokens.back(values, radix_.number(digits.value()), no_loss(x, comm));
}

Var FiniteScalar::decoded(const Var& indices) {
  return codes(constant_like(radix_.digits(indices.value(), dtype_), indices));
}

Var FiniteScalar::codes(const Var& digits) const {
  const Var half = per_feature(half_, digits);
  return div_along(sub_along(digits, half, -1), half, -1);
}

Var FiniteScalar::bounded(const Var& rows) const {
  const Var level = mul_along(tanh(add_along(rows, per_feature(shift_, rows), -1)), per_feature(reach_, rows), -1);
  return sub_along(level, per_feature(offset_, rows), -1);
}

}  // namespace weft
