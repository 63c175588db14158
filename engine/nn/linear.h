// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "weft/engine/nn/init.h"
#include "weft/engine/nn/module.h"

namespace weft {

enum class Bias : uint8_t { no, yes };

// activation(x w + bias) along the last axis. The weight (in, out) is initialised kaiming uniform with the gain of the
// activation, the bias with zeros.
class Linear final : public Layer {
 public:
  Linear(const std::string& name, int64_t in, int64_t out, const Init& init, Activation activation = {},
         Bias bias = Bias::yes);

  Parameter weight, bias;

 private:
  Var apply(const Var& x, const Pass& pass) override;
  Activation activation_;
};

// Linear layers in sequence, from widths[0] to widths[1] and so on, with an activation between them but none at the
// end.
class Mlp final : public Layer {
 public:
  Mlp(const std::string& name, const std::vector<int64_t>& widths, const Init& init);  // a relu
  Mlp(const std::string& name, const std::vector<int64_t>& widths, const Init& init, Activation between);

 private:
  Var apply(const Var& x, const Pass& pass) override;
  std::vector<std::unique_ptr<Linear>> layers_;
};

}  // namespace weft
