// SPDX-License-Identifier: Apache-2.0
#pragma once
// Finite scalar quantization: rounds each feature of a token to one of a few levels. A tanh bounds feature j to
// (-l/2, l/2), and rounding gives one of l = levels[j] whole numbers, symmetric about zero for odd l, from -l/2 for
// even l; divided by floor(l/2) they are in [-1, 1]. All combinations are codes, so there is no table and no loss, and
// nothing crosses ranks. The gradient passes through the tanh, and straight through the rounding.
//
// If symmetry is preserved (Stable Codec, arXiv 2411.19842, section 3.2), the l codes of a feature are equidistant from
// -1 to 1 for even l, too, and a feature takes the code nearest to tanh(x), the larger one of two.
#include "weft/losses/quantizers/mixed_radix.h"
#include "weft/losses/quantizers/quantizer.h"

namespace weft {

class FiniteScalar final : public Quantizer {
 public:
  // `dtype` is the type of decoded values.
  explicit FiniteScalar(const std::vector<int64_t>& levels, DType dtype = DType::f32, bool preserve_symmetry = false);

  int64_t size() const { return radix_.size(); }  // the number of codes

 private:
  Quantized apply(const Var& x, const Pass& pass, Communicator& comm, const Var& mask, Site caller) override;
  Var decoded(const Var& indices) override;  // the first feature is the least significant digit
  using Features = std::vector<double>;
  Var bounded(const Var& rows) const;
  Var codes(const Var& digits) const;

  MixedRadix radix_;
  Features reach_, offset_, shift_, half_;  // a feature becomes (tanh(x + shift) reach - offset) / half
  DType dtype_;
  bool symmetric_;
};

}  // namespace weft
