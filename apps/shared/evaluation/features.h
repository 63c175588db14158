// SPDX-License-Identifier: Apache-2.0
#pragma once
// Evaluation of a network on many samples, divided among the ranks of a group.
#include <functional>

#include "weft/collectives/communicator.h"
#include "weft/engine/tape/tape.h"

namespace weft {

// A network's outputs for all inputs, without gradients, on every rank. Each rank computes its part, and all ranks
// compute the same number of pieces, since the network may contain collectives.
Tensor encoded(const Tensor& inputs, const std::function<Var(Tape& tape, const Tensor& piece)>& network,
               Communicator& comm);

// The fraction of rows whose largest score is at the row's label.
double accuracy(const Tensor& scores, const Tensor& labels);

}  // namespace weft
