#pragma once
// Grouped residual quantization: the features are divided into equal groups, each with residual quantizers of its own.
#include "losses/quantizers/residual.h"

namespace weft {

class GroupedResidual final : public Quantizer {
 public:
  using Groups = std::vector<std::unique_ptr<ResidualQuantizer>>;
  explicit GroupedResidual(Groups groups);

  // Indices have two last axes: groups, and the quantizers of a group. Every group uses as many in a pass as the first.
 private:
  Quantized apply(const Var& x, const Pass& pass, Communicator& comm, const Var& mask, Site caller) override;
  Var decoded(const Var& indices) override;
  void learn(Communicator& comm, const Random& key, Site caller) override;

  Groups groups_;
};

}  // namespace weft
