#pragma once
// Data parallelism as the adjoint of replication, in one line: every rank uses the same parameters, so the gradient of
// the one they are copies of is the sum over ranks. GradientSync does the same, sooner and with less traffic, and to
// the same bits where a step has one backward. Here every rank must make the same passes, and a parameter that no rank
// has used gets zeros, where GradientSync knows that there is nothing.
#include "collectives/communicator.h"
#include "engine/tape.h"

namespace weft {

// From here on watch(parameter) gives this rank's own use of the value that all ranks hold. Gradients are then those of
// the whole objective on every rank: nothing is left to reduce.
void replicate(Tape& tape, const std::vector<Parameter*>& parameters, Communicator& comm, Site site = Site::here());

}  // namespace weft
