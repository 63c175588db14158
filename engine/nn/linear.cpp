// SPDX-License-Identifier: Apache-2.0
#include "weft/engine/nn/linear.h"

#include "weft/engine/kernels/scalar_ops.h"
#include "weft/engine/ops/matmul.h"

namespace weft {

Linear::Linear(const std::string& name, int64_t in, int64_t out, const Init& init, Activation activation,
               Bias with_bias)
    : weight(name + ".weight", kaiming_uniform(init, name + ".weight", {in, out}, gain(activation))),
      bias(name + ".bias", with_bias == Bias::yes ? init.full({out}, 0) : Tensor()),
      activation_(activation) {
  register_parameter(weight);
  register_parameter(bias);
}

Var Linear::apply(const Var& x, const Pass&) { return linear(x, bind(x, weight), bind(x, bias), activation_); }

Mlp::Mlp(const std::string& name, const std::vector<int64_t>& widths, const Init& init)
    : Mlp(name, widths, init, {.op = Unary::Relu}) {}

Mlp::Mlp(const std::string& name, const std::vector<int64_t>& widths, const Init& init, Activation between) {
  require(widths.size() >= 2, "Mlp: '", name, "' needs at least two widths, not ", widths.size());
  for (size_t i = 0; i + 1 < widths.size(); ++i) {
    const bool last = i + 2 == widths.size();
    layers_.push_back(
        std::make_unique<Linear>(name + "." + text(i), widths[i], widths[i + 1], init, last ? Activation{} : between));
    register_module(*layers_.back());
  }
}

Var Mlp::apply(const Var& x, const Pass& pass) {
  Var y = x;
  for (const auto& layer : layers_) y = (*layer)(y, pass);
  return y;
}

}  // namespace weft
