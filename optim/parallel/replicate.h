// SPDX-License-Identifier: Apache-2.0
#pragma once
// Data parallelism as the adjoint of replication: every rank uses a copy of the same parameters, so their gradient is
// the sum over ranks. GradientSync computes the same, earlier and with less traffic, and bit-identically if a step has
// one backward. With `replicate`, every rank must run the same passes, and a parameter that no rank has used gets
// zeros, whereas GradientSync reports that it has no gradient.
#include "weft/collectives/communicator.h"
#include "weft/engine/tape/tape.h"

namespace weft {

// After this call, watch(parameter) returns a replica on the tape, whose backward sums over ranks. Every rank gets the
// gradients of the whole objective, so there is nothing left to reduce.
void replicate(Tape& tape, const std::vector<Parameter*>& parameters, Communicator& comm, Site site = Site::here());

}  // namespace weft
