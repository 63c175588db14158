// SPDX-License-Identifier: Apache-2.0
#pragma once
// The optimizers, by their names in --optimizer.
#include <string>
#include <vector>

#include "weft/optim/optimizer.h"

namespace weft {

struct RuleChoice {
  std::string name = "adamw";
  double weight_decay = 1e-4;
  double momentum = 0.9;              // of sgd, lars and muon
  double beta1 = 0.9, beta2 = 0.999;  // of adam, adamw and lamb

  Rule make() const;
  // Muon is for matrices, so it leaves other parameters to AdamW. LARS and LAMB neither adapt the rates of these nor
  // decay them.
  std::vector<ParameterGroup> groups(const std::vector<Parameter*>& parameters) const;
};
std::vector<std::string> names_of_rules();

}  // namespace weft
