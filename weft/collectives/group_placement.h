#pragma once
// The placement of a value over the group of a communicator: asking for it, setting it, and requiring it.
#include "weft/collectives/communicator.h"
#include "weft/engine/tape/tape.h"

namespace weft {

// Makes the group known to the tape before any collective over it, for programs that communicate only after backward.
// From here on the tape needs the placement of a loss to seed backward, and a loss that every rank holds, such as a
// penalty on parameters alone, counts once over the group.
void declare_group(Tape& tape, const Communicator& comm);

bool has_placements(const Var& x);  // whether x is on a tape that follows placements now
Placement placement_of(const Var& x, const Communicator& comm);
// The same value under another placement. The caller is trusted: nothing is moved or checked.
Var with_placement(const Var& x, const Communicator& comm, Placement placement);
// Error unless the placement of x over the group is one of these. Constant counts as Replicated and as Invariant.
void expect_placement(const std::string& op, const Var& x, const Communicator& comm,
                      std::initializer_list<Placement> allowed, const char* advice);

// Tells the observers of x's tape that all ranks of the group are about to run this collective.
void announce(const std::string& op, const Var& x, const Communicator& comm, Site site);

// The conversions that move nothing; placement_conversions.h has all of them in a table.
Var as_partial(const Var& x, Communicator& comm);
Var as_varying(const Var& x, Communicator& comm);
Var as_replicated(const Var& x, Communicator& comm);

}  // namespace weft
