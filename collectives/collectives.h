// SPDX-License-Identifier: Apache-2.0
#pragma once
// Differentiable collectives. The objective is the sum over ranks of each rank's loss, so every backward is the exact
// adjoint of its forward over the group, for any use that a rank makes of its part of the result:
//
//   forward            backward                      the result
//   all_reduce sum     all_reduce sum                the sum, on every rank
//   all_reduce mean    all_reduce mean               the mean, on every rank
//   all_reduce max     all_reduce sum, to owners     the extreme; ranks that tie for it share its gradient equally
//   all_reduce prod    all_reduce sum x the others   the product; exact with zeros
//   reduce_scatter     all_gather                    my rows of the sum
//   all_gather         reduce_scatter sum            the rows of all ranks
//   broadcast          reduce to the root            the root's value; the others' inputs get zero gradients
//   reduce             broadcast from the root       the sum on the root, zeros elsewhere
//   gather             scatter                       the rows of all ranks on the root, no rows elsewhere
//   scatter            gather                        my rows of the root's
//   all_to_all         all_to_all, counts swapped    my blocks of all ranks
//   permute            permute back                  another rank's value
//   send / receive     receive / send                a message
//   scan, exscan       the same from the other end   the sum over the ranks before me (scan: and me)
//
// Every recorded collective takes part in backward, with a zero cotangent if no gradient reaches it, so no rank waits
// for a collective that another skips. One rank runs the same code as many.
#include "weft/collectives/communicator.h"
#include "weft/engine/tape/tape.h"

namespace weft {

Var all_reduce(const Var& x, Communicator& comm, ReduceOp op = ReduceOp::sum, Site site = Site::here());
Var reduce_scatter(const Var& x, Communicator& comm, ReduceOp op = ReduceOp::sum, Site site = Site::here());
Var reduce_scatter_v(const Var& x, const Rows& rows, Communicator& comm, ReduceOp op = ReduceOp::sum,
                     Site site = Site::here());
Var reduce(const Var& x, GroupRank root, Communicator& comm, ReduceOp op = ReduceOp::sum, Site site = Site::here());
Var scan(const Var& x, Communicator& comm, ReduceOp op = ReduceOp::sum, Site site = Site::here());
Var exscan(const Var& x, Communicator& comm, Site site = Site::here());  // of sums

Var all_gather(const Var& x, Communicator& comm, Site site = Site::here());
Var all_gather_v(const Var& x, const Rows& rows, Communicator& comm, Site site = Site::here());
Var gather(const Var& x, GroupRank root, Communicator& comm, Site site = Site::here());
Var gather_v(const Var& x, const Rows& rows, GroupRank root, Communicator& comm, Site site = Site::here());
Var scatter(const Var& x, GroupRank root, Communicator& comm, Site site = Site::here());
Var scatter_v(const Var& x, const Rows& rows, GroupRank root, Communicator& comm, Site site = Site::here());
Var broadcast(const Var& x, GroupRank root, Communicator& comm, Site site = Site::here());
Var all_to_all(const Var& x, Communicator& comm, Site site = Site::here());
Var all_to_all_v(const Var& x, const Counts& counts, Communicator& comm, Site site = Site::here());

Var permute(const Var& x, const Sources& source, Communicator& comm, Site site = Site::here());
Var shift(const Var& x, int by, Communicator& comm, Site site = Site::here());  // from rank - by, around the ring

// A message is two ops on two ranks. The result of `send` is an empty value that stands for the message. Both ranks
// must run backward.
Var send(const Var& x, GroupRank to, Communicator& comm, Site site = Site::here());
Var receive(Tape& tape, const Shape& shape, DType dtype, Device device, GroupRank from, Communicator& comm,
            Site site = Site::here());

// sum_r w_r x_r / sum_r w_r with one scalar weight per rank: the mean for uneven counts of tokens or samples.
Var weighted_mean(const Var& x, const Var& weight, Communicator& comm, Site site = Site::here());
Var all_reduce_norm(const Var& x, Communicator& comm, Site site = Site::here());         // zero gradient at zero
Var all_reduce_log_sum_exp(const Var& x, Communicator& comm, Site site = Site::here());  // elementwise over ranks

}  // namespace weft
