// SPDX-License-Identifier: Apache-2.0
#pragma once
// Residual quantization: each quantizer quantizes the residual of those before it, and the result is the sum of their
// values. With sg for a value without a gradient,
//
//   r_1 = x,   r_(i+1) = r_i - sg(q_i(r_i)),   values = q_1(r_1) + q_2(r_2) + ...
//
// The loss is the sum of the quantizers' losses, whose gradients reach x through each r_i. The gradient of the values
// passes through the first quantizer only: every residual moves with x, so each further straight-through copy would
// count the same gradient again. Only the collectives of the quantizers themselves cross ranks.
//
// With quantizer dropout, a training step uses only the first few quantizers. Their number is drawn from pass.key, so
// all ranks agree without communication. The index of an unused quantizer is -1, and decoding adds nothing for it.
#include <memory>

#include "weft/losses/quantizers/quantizer.h"

namespace weft {

struct QuantizerDropout {
  int64_t least = 0;        // the minimal number that a training step uses; 0 always uses all
  int64_t multiple_of = 1;  // the number is rounded up to a multiple of this
};

class ResidualQuantizer : public Quantizer {
 public:
  using Layers = std::vector<std::unique_ptr<Quantizer>>;
  explicit ResidualQuantizer(Layers layers, const QuantizerDropout& dropout = {},
                             const char* kind = "ResidualQuantizer");

  // The last axis of indices is the quantizers. decode also accepts the indices of only the first few.
  int64_t used(const Pass& pass) const;  // the number of quantizers that this pass uses
  Quantized quantize(const Var& x, int64_t used, const Pass& pass, Communicator& comm, const Var& mask,
                     Site caller = Site::here());

 private:
  Quantized apply(const Var& x, const Pass& pass, Communicator& comm, const Var& mask, Site caller) override {
    return quantize(x, used(pass), pass, comm, mask, caller);
  }
  Var decoded(const Var& indices) override;
  void count(Communicator& comm, Site caller) override;
  void learn(Communicator& comm, const Random& key, Site caller) override;
  virtual Var prepared(const Var& rows) const { return rows; }  // the input of the first quantizer

  Layers layers_;
  QuantizerDropout dropout_;
  int64_t used_since_update_ = 0;
};

}  // namespace weft
