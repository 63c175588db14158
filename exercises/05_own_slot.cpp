// SPDX-License-Identifier: Apache-2.0
// Exercise 5: repair a loss that puts the own slot back.
//
// Sample i's loss is log sum_j exp(x_i . x_j) over the features x_j of all ranks' samples, and the objective is the
// mean over all samples. A team wrote this, and its gradient is wrong:
//
//   const Rows counts = comm.rows_of(features.shape()[0]);
//   const int me = comm.rank().value;
//   const Tensor all = comm.all_gather_v(detach(features).value(), counts);
//   const int64_t begin = rows_before(counts, me), end = begin + features.shape()[0];
//   const Var keys = concat({Var(all.slice(0, begin)), features, Var(all.slice(end, all.shape()[0]))}, 0);
//   const Var scores = matmul(features, keys, Transpose::no, Transpose::yes);
//   return share(sum(log_sum_exp(scores, 1)), total_rows(counts), comm);
//
// Predict: does the loss change when it is repaired? And on one rank, does the gradient?
#include "exercises/functions.h"
#include "weft/collectives/collectives.h"
#include "weft/collectives/share.h"
#include "weft/engine/ops/matmul.h"
#include "weft/engine/ops/reduce.h"
#include "weft/engine/ops/shape_ops.h"

namespace weft::exercises {

Var attraction(const Var& features, Communicator& comm) { throw NotWritten(); }

}  // namespace weft::exercises
