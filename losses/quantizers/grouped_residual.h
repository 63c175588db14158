// SPDX-License-Identifier: Apache-2.0
#pragma once
// Grouped residual quantization: divides the features into equal groups and quantizes each with its own
// ResidualQuantizer. The loss is the sum of the groups' losses, and each group communicates on its own.
#include "weft/losses/quantizers/residual.h"

namespace weft {

class GroupedResidual final : public Quantizer {
 public:
  using Groups = std::vector<std::unique_ptr<ResidualQuantizer>>;
  explicit GroupedResidual(Groups groups);

  // The last two axes of indices are the groups and the quantizers of a group. In a pass, every group uses as many
  // quantizers as the first.
 private:
  Quantized apply(const Var& x, const Pass& pass, Communicator& comm, const Var& mask, Site caller) override;
  Var decoded(const Var& indices) override;
  void count(Communicator& comm, Site caller) override;
  void learn(Communicator& comm, const Random& key, Site caller) override;

  Groups groups_;
};

}  // namespace weft
