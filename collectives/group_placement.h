// SPDX-License-Identifier: Apache-2.0
#pragma once
// The placement of a value over the group of a communicator: asking for it, setting it, and requiring it.
//
// A collective over a group A also changes the placements of its input over every other group G. Which ranks are in
// which group decides how, and every rank knows it (Partition):
//
//   G and A                        before                         after
//   axes of a grid                 any; Partial if it is linear   as before
//   each G inside one A            Replicated, Varying, Constant  that over A
//                                  Partial, if A is summed        that over A
//                                  Invariant, if also over A      that over A
//   anything else                  Replicated, Varying, Constant  Varying
//
// An unknown placement stays unknown, unless G is inside A. Anything else is refused: the gradient of an Invariant or
// Partial input must be equal on all ranks of G, and would not be.
#include "weft/collectives/communicator.h"
#include "weft/engine/tape/tape.h"

namespace weft {

// Makes the group known to the tape before any collective over it, for programs that communicate only after backward.
// From here on the tape needs the placement of a loss to seed backward, and a loss that every rank holds, such as a
// penalty on parameters alone, counts once over the group. Returns the group's index on the tape.
int declare_group(Tape& tape, const Communicator& comm);

bool has_placements(const Var& x);  // whether x is on a tape that follows placements now, or a constant placed without
Placement placement_of(const Var& x, const Communicator& comm);  // a query: it changes nothing
// The same value, of which the caller knows that it is so placed over the group. The caller is trusted: nothing is
// moved or checked. Over other groups it is placed as if a collective had made it.
Var with_placement(const Var& x, const Communicator& comm, Placement placement);
// The result of a collective over the group, which has been recorded with the placements of its input.
Var collective_result(const Var& y, const Communicator& comm, Placement placement);

// How a value passes through a collective: by a linear function, of which a sum is one, or by another, or to one rank
// that makes a value of its own of it.
enum class Passage : uint8_t { linear, sum, nonlinear, message };
// Error unless the placement of x over the group is one of these, and those over other groups can pass. Constant counts
// as Replicated and as Invariant.
void expect_placement(const std::string& op, const Var& x, const Communicator& comm,
                      std::initializer_list<Placement> allowed, const char* advice, Passage passage = Passage::linear);

// Tells the observers of x's tape that all ranks of the group are about to run this collective.
void announce(const std::string& op, const Var& x, const Communicator& comm, Site site);

// The conversions that move nothing; placement_conversions.h has all of them in a table.
Var as_partial(const Var& x, Communicator& comm);
Var as_varying(const Var& x, Communicator& comm);
Var as_replicated(const Var& x, Communicator& comm);

}  // namespace weft
