#pragma once
#include "engine/nn/module.h"

namespace weft {

// In training, zeroes each element with probability p and scales the others by 1 / (1 - p); else changes nothing. Draws
// depend on the pass's key, this layer's name and the element's place in the whole batch.
class Dropout final : public Layer {
 public:
  Dropout(std::string name, double p) : name_(std::move(name)), p_(p) {}

 private:
  Var apply(const Var& x, const Pass& pass) override;
  std::string name_;
  double p_;
};

}  // namespace weft
