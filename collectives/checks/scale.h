// SPDX-License-Identifier: Apache-2.0
#pragma once
// Checks whether the gradients of a training step are those of its objective, or a multiple of them. Placements do not
// show factors: if a mean is taken twice, or a sum in place of a mean, the gradients are off by a power of the number
// of ranks. Finite differences of the whole job give the factor of each parameter.
#include <functional>
#include <optional>

#include "weft/collectives/communicator.h"
#include "weft/engine/tape/tape.h"

namespace weft {

// One step of a program, in f64. It runs many times, so it must compute the same each time.
struct TrainingStep {
  // Computes the loss that backward is called with.
  std::function<Var(Tape&)> loss;
  // Computes the gradients for the optimizer, in the order of the parameters. By default backward and a sum over ranks.
  std::function<std::vector<Tensor>()> gradients = nullptr;
  // Computes the intended objective, equal on all ranks, such as the loss of the whole batch in one process. By default
  // it is the sum of the ranks' losses; then a wrong factor in the loss itself is not found.
  std::function<double()> objective = nullptr;
};

// The factors by which one parameter's slopes are off: 1 if they are right, none if they are no multiple of the right
// ones.
struct Scale {
  const Parameter* parameter;
  std::optional<double> loss;       // of the slopes of the sum of the ranks' losses, relative to the objective
  std::optional<double> gradients;  // of the gradients, relative to the slopes of the sum of the ranks' losses
  bool agree;                       // whether all ranks have the same gradients
};

// For parameters that every rank of the group holds.
std::vector<Scale> scales_of(const TrainingStep& step, std::span<Parameter* const> parameters, Communicator& comm);

// Error on every rank unless all factors are 1. It names the factors and the likely mistake.
void check_scale(const TrainingStep& step, std::span<Parameter* const> parameters, Communicator& comm);

}  // namespace weft
