// SPDX-License-Identifier: Apache-2.0
// Exercise 3: a rank's share of a mean.
//
// `losses` are the losses of this rank's samples. The objective, the sum over ranks of what this function returns, must
// be the mean over the samples of all ranks. Ranks have different numbers of samples, and one may have none.
// comm.rows_of(n) tells each rank the n of all ranks, and total_rows adds them.
//
// Predict: on which division of the samples is the mean of the ranks' means right?
#include "exercises/functions.h"
#include "weft/collectives/collectives.h"
#include "weft/collectives/share.h"
#include "weft/engine/ops/reduce.h"

namespace weft::exercises {

Var mean_share(const Var& losses, Communicator& comm) { throw NotWritten(); }

}  // namespace weft::exercises
