#pragma once
// Differentiable collectives. The objective is the sum over ranks of what each rank computes, so every backward is the
// exact adjoint of its forward over the group, whatever each rank does with its part of the result:
//
//   forward            backward                      the result
//   all_reduce sum     all_reduce sum                the sum, on every rank
//   all_reduce mean    all_reduce mean               the mean, on every rank
//   all_reduce max     all_reduce sum, to owners     the extreme; ranks that tie for it share its gradient equally
//   all_reduce prod    all_reduce sum x the others   the product; exact with zeros
//   reduce_scatter     all_gather                    my rows of the sum
//   all_gather         reduce_scatter sum            everybody's rows
//   broadcast          reduce to the root            the root's value; the others' inputs get zero gradients
//   reduce             broadcast from the root       the sum on the root, zeros elsewhere
//   gather             scatter                       everybody's rows on the root, no rows elsewhere
//   scatter            gather                        my rows of the root's
//   all_to_all         all_to_all, counts swapped    my block of everybody's
//   permute            permute back                  another rank's value
//   send / receive     receive / send                a message
//   scan, exscan       the same from the other end   the sum over the ranks before me (scan: and me)
//
// A collective always takes part in backward, with zeros where no gradient reached it, so no rank waits for another in
// vain. With one rank everything runs the same way.
#include "collectives/communicator.h"
#include "engine/tape.h"

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

// A message is two ops on two ranks; the sender's result is an empty value that stands for the message. Differentiate
// on both ranks.
Var send(const Var& x, GroupRank to, Communicator& comm, Site site = Site::here());
Var receive(Tape& tape, const Shape& shape, DType dtype, Device device, GroupRank from, Communicator& comm,
            Site site = Site::here());

// Any collective of verbs.h in two halves, such as start(AllGather{}, x, comm), between which this rank goes on with
// its own work. In backward the adjoint is in two halves, too: it starts where the gradient of the result is complete,
// and is waited for where that of x is needed. Each must be waited for.
class Started {
 public:
  Var wait();

  struct State;
  Started(std::shared_ptr<State> state, Var token) : state_(std::move(state)), token_(std::move(token)) {}

 private:
  std::shared_ptr<State> state_;
  Var token_;  // of the first half, for the second
};
template <class Verb> Started start(const Verb& verb, const Var& x, Communicator& comm, Site site = Site::here());

// sum_r w_r x_r / sum_r w_r with one weight () per rank: the right mean for uneven counts of tokens or samples.
Var weighted_mean(const Var& x, const Var& weight, Communicator& comm, Site site = Site::here());
Var all_reduce_norm(const Var& x, Communicator& comm, Site site = Site::here());         // zero gradient at zero
Var all_reduce_log_sum_exp(const Var& x, Communicator& comm, Site site = Site::here());  // elementwise over ranks

}  // namespace weft
