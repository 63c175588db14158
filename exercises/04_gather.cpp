// SPDX-License-Identifier: Apache-2.0
// Exercise 4: an all_gather and its adjoint.
//
// Each rank has some rows, and returns the rows of all ranks, in rank order, with a gradient. Write it as an operation:
// `record` what comm.all_gather_v(rows.value(), counts) gives, with a pullback. g is the cotangent of the result, that
// is of the rows of all ranks; the pullback returns that of the own rows. comm.rows_of tells the counts of all ranks;
// comm.all_reduce, comm.reduce_scatter_v and others are in collectives/communicator.h, and take and give Tensors.
//
// Predict: which rank's loss says something of the rows of rank 0?
#include "exercises/functions.h"
#include "weft/collectives/linear_collective.h"

namespace weft::exercises {
namespace {

const CollectiveOp gather_op{"gather"};  // its name on the tape; a collective runs in backward on all ranks or none

}  // namespace

Var gather(const Var& rows, Communicator& comm) { throw NotWritten(); }

}  // namespace weft::exercises
