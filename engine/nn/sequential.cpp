// SPDX-License-Identifier: Apache-2.0
#include "weft/engine/nn/sequential.h"

namespace weft {
namespace {

struct Function final : Layer {
  std::function<Var(const Var&)> function;
  explicit Function(std::function<Var(const Var&)> function) : function(std::move(function)) {}
  Var apply(const Var& x, const Pass&) override { return function(x); }
};

}  // namespace

void Sequential::append(std::unique_ptr<Layer> layer) {
  register_module(*layer);
  layers_.push_back(std::move(layer));
}

void Sequential::then(std::function<Var(const Var&)> function) {
  layers_.push_back(std::make_unique<Function>(std::move(function)));
}

Var Sequential::apply(const Var& x, const Pass& pass) {
  Var y = x;
  for (const auto& layer : layers_) y = (*layer)(y, pass);
  return y;
}

}  // namespace weft
