#pragma once
// The losses of pictures and texts that belong together, by the names that --loss has for them.
#include <functional>

#include "collectives/communicator.h"
#include "engine/tape.h"

namespace weft {

struct PairLoss {
  std::string name;
  double first_scale;  // of the scores, which is learnt
  bool biased;         // whether there is a bias beside it, or else it is empty
  std::function<Var(const Var& pictures, const Var& texts, const Var& scale, const Var& bias, Communicator& comm)>
      share;
};
const std::vector<PairLoss>& pair_losses();
const PairLoss& pair_loss_named(const std::string& name);

}  // namespace weft
