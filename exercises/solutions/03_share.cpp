// SPDX-License-Identifier: Apache-2.0
// Exercise 3. The mean of the ranks' means is right if all ranks have equally many samples. A rank without samples has
// no mean, but it has a share: zero.
#include "exercises/functions.h"
#include "weft/collectives/collectives.h"
#include "weft/collectives/share.h"
#include "weft/engine/ops/reduce.h"

namespace weft::exercises {

Var mean_share(const Var& losses, Communicator& comm) {
  return share(sum(losses), total_rows(comm.rows_of(losses.size())), comm);
}

}  // namespace weft::exercises
