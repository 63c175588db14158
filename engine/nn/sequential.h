// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <functional>
#include <memory>

#include "weft/engine/nn/module.h"

namespace weft {

// Layers in sequence, each named by its position, with functions without parameters between them:
//
//   Sequential net("net");
//   net.add<Linear>(784, 128, init);  // "net.0"
//   net.then(relu);
//   net.add<Linear>(128, 10, init);   // "net.2"
class Sequential final : public Layer {
 public:
  explicit Sequential(std::string name) : name_(std::move(name)) {}

  template <class L, class... Arguments> L& add(Arguments&&... arguments) {
    auto layer =
        std::make_unique<L>(name_ + "." + std::to_string(layers_.size()), std::forward<Arguments>(arguments)...);
    L& added = *layer;
    append(std::move(layer));
    return added;
  }
  void append(std::unique_ptr<Layer> layer);  // which has a name of its own
  void then(std::function<Var(const Var&)> function);

 private:
  Var apply(const Var& x, const Pass& pass) override;
  std::string name_;
  std::vector<std::unique_ptr<Layer>> layers_;
};

}  // namespace weft
