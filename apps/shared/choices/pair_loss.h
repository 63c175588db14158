// SPDX-License-Identifier: Apache-2.0
#pragma once
// The losses of matching pictures and texts, by their names in --loss.
#include <functional>

#include "weft/collectives/communicator.h"
#include "weft/engine/tape/tape.h"

namespace weft {

struct PairLoss {
  std::string name;
  double first_scale;  // the initial scale of the scores, which is learnt
  bool biased;         // whether it has a bias; if not, `bias` is an empty Var
  std::function<Var(const Var& pictures, const Var& texts, const Var& scale, const Var& bias, Communicator& comm)>
      share;
};
const std::vector<PairLoss>& pair_losses();
const PairLoss& pair_loss_named(const std::string& name);

}  // namespace weft
