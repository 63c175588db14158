#pragma once
// Evaluation of a network on many samples, divided among the ranks of a group.
#include <functional>

#include "collectives/communicator.h"
#include "engine/tape.h"

namespace weft {

// What a network, called without gradients, makes of all inputs, on every rank. Each computes its part, in as many
// pieces as the others, since the network may have collectives in it.
Tensor features_of(const Tensor& inputs, const std::function<Var(Tape& tape, const Tensor& piece)>& network,
                   Communicator& comm);

// The part of the rows of scores whose largest is at the row's label.
double accuracy(const Tensor& scores, const Tensor& labels);

}  // namespace weft
