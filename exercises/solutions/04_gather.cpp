// SPDX-License-Identifier: Apache-2.0
// Exercise 4. Every rank has rank 0's rows, so every rank's loss says something of them, and the pullback adds that: a
// reduce_scatter of sums.
#include "exercises/functions.h"
#include "weft/collectives/linear_collective.h"

namespace weft::exercises {
namespace {

const CollectiveOp gather_op{"gather"};  // its name on the tape; a collective runs in backward on all ranks or none

}  // namespace

Var gather(const Var& rows, Communicator& comm) {
  const Rows counts = comm.rows_of(rows.shape()[0]);
  return record(gather_op, comm.all_gather_v(rows.value(), counts),
                from(rows, [=, &comm](const Var& g) { return Var(comm.reduce_scatter_v(g.value(), counts)); }));
}

}  // namespace weft::exercises
