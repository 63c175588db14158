#include "optim/replicate.h"

#include "collectives/group_placement.h"
#include "collectives/spreads.h"

namespace weft {

void replicate(Tape& tape, const std::vector<Parameter*>& parameters, Communicator& comm, Site site) {
  for (const Parameter* parameter : parameters) {
    require(!parameter->placement || !is_within(parameter->placement->group, comm), "replicate: ", parameter->name,
            " is held by a group among these ranks, so it is not the same on all of them");
    const Var held_by_all = spread_as(tape.watch(*parameter), comm, Spread::invariant);
    tape.stand_in(*parameter, vary(held_by_all, comm, site));
  }
}

}  // namespace weft
