#pragma once
// NT-Xent, the loss of SimCLR: of the features of two views of every sample, each picks its counterpart among all
// others of both views.
#include "collectives/communicator.h"
#include "engine/tape.h"

namespace weft {

// `first` and `second` (b, d) need not be normalized. The whole loss is the mean over the 2B features of all ranks.
Var nt_xent(const Var& first, const Var& second, double temperature, Communicator& comm);

}  // namespace weft
