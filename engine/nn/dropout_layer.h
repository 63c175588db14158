// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "weft/engine/nn/module.h"

namespace weft {

// In training, zeroes each element with probability p and scales the others by 1 / (1 - p); otherwise the identity.
// Draws depend on the key of the pass, the name of this layer, and the element's index in the whole batch.
class Dropout final : public Layer {
 public:
  Dropout(std::string name, double p) : name_(std::move(name)), p_(p) {}

 private:
  Var apply(const Var& x, const Pass& pass) override;
  std::string name_;
  double p_;
};

}  // namespace weft
