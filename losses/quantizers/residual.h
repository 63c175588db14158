#pragma once
// Residual quantization: each quantizer gets what those before it have left, r_1 = x and r_(i+1) = r_i - sg(q_i(r_i)),
// and the result is q_1 + q_2 + ... Their losses are added up; each pulls at x through its own r_i. The gradient of the
// values goes through the first quantizer alone, and once: as x moves, so does the residual, and every further
// straight-through copy would count the same gradient once more.
//
// With quantizer dropout a step uses only the first few: how many is drawn from pass.key, so all ranks agree without a
// word. The index of a quantizer that is not used is -1, and decodes to nothing added.
#include <memory>

#include "losses/quantizers/quantizer.h"

namespace weft {

struct QuantizerDropout {
  int64_t least = 0;        // a training step uses at least so many; 0 for always all
  int64_t multiple_of = 1;  // and rounds up to a multiple
};

class ResidualQuantizer : public Quantizer {
 public:
  using Layers = std::vector<std::unique_ptr<Quantizer>>;
  explicit ResidualQuantizer(Layers layers, const QuantizerDropout& dropout = {},
                             const char* kind = "ResidualQuantizer");

  // Indices have a last axis, one for each quantizer; decode takes the first few, too.
  int64_t used(const Pass& pass) const;  // how many quantizers such a pass uses
  Quantized quantize(const Var& x, int64_t used, const Pass& pass, Communicator& comm, const Var& mask,
                     Site caller = Site::here());

 private:
  Quantized apply(const Var& x, const Pass& pass, Communicator& comm, const Var& mask, Site caller) override {
    return quantize(x, used(pass), pass, comm, mask, caller);
  }
  Var decoded(const Var& indices) override;
  void learn(Communicator& comm, const Random& key, Site caller) override;
  virtual Var prepared(const Var& rows) const { return rows; }  // what the first quantizer gets

  Layers layers_;
  QuantizerDropout dropout_;
  int64_t used_since_update_ = 0;
};

}  // namespace weft
