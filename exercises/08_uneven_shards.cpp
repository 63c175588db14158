// SPDX-License-Identifier: Apache-2.0
// Exercise 8: a variance of uneven shards.
//
// `samples` is a vector of this rank's samples. Return, on every rank, the variance of all ranks' samples: the mean of
// the squares of their differences from the mean of all. Each rank uses it in a loss of its own, so its gradient
// crosses ranks. The second derivative is judged, too. A rank may have no samples. collectives/collectives.h has
// collectives of Vars.
//
// Predict: is the mean of the ranks' variances larger or smaller than the variance of all?
#include "exercises/functions.h"
#include "weft/collectives/collectives.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/reduce.h"

namespace weft::exercises {

Var whole_variance(const Var& samples, Communicator& comm) { throw NotWritten(); }

}  // namespace weft::exercises
