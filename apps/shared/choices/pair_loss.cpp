// SPDX-License-Identifier: Apache-2.0
#include "apps/shared/choices/pair_loss.h"

#include <algorithm>

#include "weft/losses/contrastive/clip.h"
#include "weft/losses/contrastive/siglip.h"

namespace weft {

const std::vector<PairLoss>& pair_losses() {
  static const std::vector<PairLoss> all = {
      {"clip", 1 / 0.07, false,
       [](const Var& pictures, const Var& texts, const Var& scale, const Var&, Communicator& comm) {
         return clip_loss(pictures, texts, scale, {}, comm);
       }},
      {"siglip", 10, true,
       [](const Var& pictures, const Var& texts, const Var& scale, const Var& bias, Communicator& comm) {
         return siglip_loss(pictures, texts, scale, bias, {}, comm);
       }},
  };
  return all;
}

const PairLoss& pair_loss_named(const std::string& name) {
  const auto has_it = [&](const PairLoss& loss) { return loss.name == name; };
  const auto found = std::find_if(pair_losses().begin(), pair_losses().end(), has_it);
  require(found != pair_losses().end(), "there is no loss ", name, " of pairs");
  return *found;
}

}  // namespace weft
