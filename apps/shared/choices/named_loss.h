// SPDX-License-Identifier: Apache-2.0
#pragma once
// The losses of two views of each sample, by their names in --loss.
#include <functional>

#include "weft/collectives/communicator.h"
#include "weft/engine/tape/tape.h"

namespace weft {

struct NamedLoss {
  std::string name;
  std::function<Var(const Var& first, const Var& second, double temperature, const Random& step, Communicator& comm)>
      share;
};
std::vector<std::string> names_of_losses();
const NamedLoss& loss_named(const std::string& name);

}  // namespace weft
