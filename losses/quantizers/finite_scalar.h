#pragma once
// Finite scalar quantization: feature j is bounded to (-l/2, l/2) by a tanh and rounded to one of its l = levels[j]
// whole numbers, symmetric about zero for odd l, from -l/2 for even l; the code is these over floor(l/2), in [-1, 1].
// All combinations are codes, so there is no table, no loss, and nothing crosses ranks. The gradient goes through the
// tanh, and straight through the rounding.
//
// Where symmetry is preserved (Stable Codec, arXiv 2411.19842, section 3.2) the l codes of a feature are equidistant
// from -1 to 1, for even l, too: the one nearest to tanh(x), the larger of two.
#include "losses/quantizers/mixed_radix.h"
#include "losses/quantizers/quantizer.h"

namespace weft {

class FiniteScalar final : public Quantizer {
 public:
  // `dtype` is that of what decode gives.
  explicit FiniteScalar(const std::vector<int64_t>& levels, DType dtype = DType::f32, bool preserve_symmetry = false);

  int64_t size() const { return radix_.size(); }  // how many codes there are

 private:
  Quantized apply(const Var& x, const Pass& pass, Communicator& comm, const Var& mask, Site caller) override;
  Var decoded(const Var& indices) override;  // the first feature counts least
  using Features = std::vector<double>;
  Var bounded(const Var& rows) const;
  Var codes(const Var& digits) const;

  MixedRadix radix_;
  Features reach_, offset_, shift_, half_;  // per feature: tanh(x + shift) reach - offset, over half
  DType dtype_;
  bool symmetric_;
};

}  // namespace weft
