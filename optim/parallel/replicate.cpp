// SPDX-License-Identifier: Apache-2.0
#include "weft/optim/parallel/replicate.h"

#include "weft/collectives/placement_conversions.h"
#include "weft/collectives/sharding.h"

namespace weft {

void replicate(Tape& tape, const std::vector<Parameter*>& parameters, Communicator& comm, Site site) {
  for (const Parameter* parameter : parameters) {
    require(!parameter->sharding || !is_within(parameter->sharding->group, comm), "replicate: ", parameter->name,
            " is held by a group among these ranks, so it is not the same on all of them");
    const Var held_by_all = with_placement(tape.watch(*parameter), comm, Placement::invariant);
    tape.substitute(*parameter, vary(held_by_all, comm, site));
  }
}

}  // namespace weft
