// SPDX-License-Identifier: Apache-2.0
#pragma once
// A gather with a stated adjoint, and a sum over ranks without one, as other libraries have them. Everything in
// weft::emulated repeats what another library computes, wrong gradients included: to compare its numbers with ours, and
// to show a mistake. Never train with it. The other losses include none of it.
//
// An emulated gradient cannot be differentiated again (Graph::create); that is an Error.
#include "weft/collectives/communicator.h"
#include "weft/engine/tape/tape.h"

namespace weft::emulated {

// What a rank makes of the gradient of all gathered rows, of which its own are one slot. Only `sum` is the adjoint.
enum class Adjoint : uint8_t {
  none,                   // nothing: the gathered rows are constants
  own_slot,               // the own slot; what other ranks say of its rows is lost
  own_slot_times_ranks,   // the same times the number of ranks
  all_reduced_own_slots,  // the sum of every rank's own slot; ranks must have equally many rows
  mean,                   // reduce-scatter, as a mean
  sum                     // reduce-scatter, as a sum
};

// The rows of all ranks, in rank order.
Var gather(const Var& x, const Rows& rows, Adjoint adjoint, Communicator& comm, Site site = Site::here());

// The sum over ranks in place, of which the tape knows nothing: each rank's gradient stays its own.
Var raw_all_reduce(const Var& x, Communicator& comm, Site site = Site::here());

}  // namespace weft::emulated
