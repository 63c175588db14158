#pragma once
// Whether the gradients that a training step ends with are those of the number it means to minimise, or a multiple of
// them. Types carry no factors; but a mean taken twice, or a sum where a mean was due, is off by a power of the number
// of ranks, and finite differences of the whole job say by which, parameter by parameter.
#include <functional>
#include <optional>

#include "collectives/communicator.h"
#include "engine/tape.h"

namespace weft {

// One step of a program, in f64. It is run again and again, so it must compute the same each time.
struct TrainingStep {
  // Up to what backward is given.
  std::function<Var(Tape&)> loss;
  // What the optimizer gets, in the order of the parameters. By default backward, and a sum over ranks.
  std::function<std::vector<Tensor>()> gradients = nullptr;
  // The number that is meant, equal on all ranks, such as the loss of the whole batch in one process. By default what
  // the losses add up to: then a factor on the loss itself goes unseen, because its gradient is right.
  std::function<double()> objective = nullptr;
};

// Factors by which one parameter's slopes are off: 1 if right, none if they are no multiple of the right ones.
struct Scale {
  const Parameter* parameter;
  std::optional<double> loss;       // what the losses add up to, against the objective
  std::optional<double> gradients;  // the gradients, against what the losses add up to
  bool agree;                       // whether all ranks have these gradients
};

// For parameters that every rank of the group holds.
std::vector<Scale> scales_of(const TrainingStep& step, std::span<Parameter* const> parameters, Communicator& comm);

// Error on every rank unless all is right: it names the factors and what they are a sign of.
void check_scale(const TrainingStep& step, std::span<Parameter* const> parameters, Communicator& comm);

}  // namespace weft
