#include "optim/replicate.h"

#include "collectives/spreads.h"

namespace weft {

void replicate(Tape& tape, const std::vector<Parameter*>& parameters, Communicator& comm, Site site) {
  for (const Parameter* parameter : parameters) {
    const Var held_by_all = spread_as(tape.watch(*parameter), comm, Spread::invariant);
    tape.stand_in(*parameter, vary(held_by_all, comm, site));
  }
}

}  // namespace weft
