// SPDX-License-Identifier: Apache-2.0
#pragma once
// The factors of every parameter that was moved.
#include "tools/weft/dump/evidence.h"
#include "tools/weft/slopes/slopes.h"

namespace weft::verify {

// How the slopes of one parameter compare.
struct MeasuredParameter {
  const MovedParameter* parameter;
  std::optional<Factor> loss;           // of what the ranks' losses add up to, relative to the objective
  std::optional<Factor> reweighted;     // the same, if each rank's loss counts by its rows
  std::vector<Factor> gradients;        // by rank, relative to the losses, or to the objective if there are none
  std::map<std::string, Slopes> terms;  // of the objective
  Factor of_mean, of_sum;               // of the gradients of all ranks
  bool agree = true;                    // whether all ranks have the same gradient

  bool single() const { return parameter->directions.cols() == 1; }  // such as a temperature
};

std::vector<MeasuredParameter> measured(const Dump& dump);

}  // namespace weft::verify
