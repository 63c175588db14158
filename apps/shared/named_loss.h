#pragma once
// The losses of two views of every sample, by the names that --loss has for them.
#include <functional>

#include "collectives/communicator.h"
#include "engine/tape.h"

namespace weft {

struct NamedLoss {
  std::string name;
  std::function<Var(const Var& first, const Var& second, double temperature, const Random& step, Communicator& comm)>
      share;
};
std::vector<std::string> names_of_losses();
const NamedLoss& loss_named(const std::string& name);

}  // namespace weft
