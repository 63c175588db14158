// SPDX-License-Identifier: Apache-2.0
#include "weft/engine/nn/module.h"

namespace weft {

void Module::list(Role role, std::vector<Parameter*>& all) const {
  for (const Part& part : parts_) {
    if (part.child)
      part.child->list(role, all);
    else if (part.role == role && part.tensor->value.defined())  // an optional parameter may be undefined
      all.push_back(part.tensor);
  }
}

std::vector<Parameter*> Module::parameters() const {
  std::vector<Parameter*> all;
  list(Role::parameter, all);
  return all;
}

std::vector<Parameter*> Module::buffers() const {
  std::vector<Parameter*> all;
  list(Role::buffer, all);
  return all;
}

Var bind(const Var& x, const Parameter& parameter) {
  if (!parameter.value.defined()) return {};
  return x.tape() ? x.tape()->watch(parameter) : Var(parameter.value);
}

}  // namespace weft
