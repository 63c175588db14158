// SPDX-License-Identifier: Apache-2.0
// The differentiable collectives: the linear ones by the table of verbs.h, the others with pullbacks of their own.
// Their cases are in tests/cases; composed.cpp has collectives that are composed of these.
#include "weft/collectives/collectives.h"

#include "weft/collectives/linear_collective.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/reduce.h"
#include "weft/engine/ops/shape_ops.h"

namespace weft {
namespace {

const CollectiveOp all_reduce_extreme_op{"all_reduce extreme"}, all_reduce_product_op{"all_reduce product"},
    send_op{"send"}, receive_op{"receive"};

using namespace placement_letters;

// Ranks that attain the extreme share its gradient equally, so that the shares add up to one. No rank attains a NaN, so
// the gradients of all ranks are NaN, too.
Var all_reduce_extreme(const Var& x, Communicator& comm, ReduceOp op, Site site) {
  announce(all_reduce_extreme_op.name, x, comm, site);
  check_movable(all_reduce_extreme_op, x, comm, Passage::nonlinear);
  const auto pullback = [=, &comm](const Var& g, const Var& y) {
    const Tensor attained = equal(x.value(), y.value()).to(x.dtype());
    const Tensor owners = comm.all_reduce(attained, ReduceOp::sum, site);
    return all_reduce(g, comm, ReduceOp::sum, site) *
           (constant_like(attained, x) / with_placement(constant_like(owners, x), comm, C));
  };
  return collective_result(record(all_reduce_extreme_op, comm.all_reduce(x.value(), op, site), from(x, pullback)), comm,
                           R);
}

// The product of the other ranks is computed without division, so the gradient is exact for zeros.
Var all_reduce_product(const Var& x, Communicator& comm, Site site) {
  announce(all_reduce_product_op.name, x, comm, site);
  expect_placement(all_reduce_product_op.name, x, comm, {V},
                   "all ranks hold this value already; take its power instead", Passage::nonlinear);
  const auto pullback = [=, &comm](const Var& g) {
    const Var all = as_varying(all_gather(reshape(x, x.shape().with_inserted(0, 1)), comm, site), comm);
    const int64_t me = comm.rank().value;
    const Var others = concat({slice(all, 0, 0, me), slice(all, 0, me + 1, comm.size())}, 0);
    return all_reduce(g, comm, ReduceOp::sum, site) * prod(others, 0);
  };
  return collective_result(
      record(all_reduce_product_op, comm.all_reduce(x.value(), ReduceOp::product, site), from(x, pullback)), comm, R);
}

}  // namespace

static const char* const counted_once_per_rank =
    "all ranks hold this value already, so it would be counted once per rank";

void check_summable(const Op& op, const Var& x, const Communicator& comm) {
  require(x.defined(), op.name, ": the input is an empty Var");
  expect_placement(op.name, x, comm, {P, V}, counted_once_per_rank, Passage::sum);
}
void check_reducible(const Op& op, const Var& x, const Communicator& comm, Passage passage) {
  require(x.defined(), op.name, ": the input is an empty Var");
  const bool term = has_placements(x) && placement_of(x, comm) == P;
  expect_placement(op.name, x, comm, {V},
                   term ? "a rank holds a term of a pending sum; take the sum of the terms" : counted_once_per_rank,
                   passage);
}
void check_movable(const Op& op, const Var& x, const Communicator& comm, Passage passage) {
  require(x.defined(), op.name, ": the input is an empty Var");
  expect_placement(op.name, x, comm, {R, V},
                   "complete a Partial sum with all_reduce or reduce_scatter first, vary() an Invariant value",
                   passage);
}

Var as_gradient(const Var& result, const Shape& shape) {
  if (result.shape() == shape) return result;
  if (result.size() == 0) return replicated_constant(Tensor::zeros(shape, result.dtype(), result.device()));
  return pad(result, 0, 0, shape[0] - result.shape()[0]);
}

Var all_reduce(const Var& x, Communicator& comm, ReduceOp op, Site site) {
  if (op == ReduceOp::maximum || op == ReduceOp::minimum) return all_reduce_extreme(x, comm, op, site);
  if (op == ReduceOp::product) return all_reduce_product(x, comm, site);
  return run_linear(AllReduce{op}, x, comm, site);
}

Var reduce_scatter(const Var& x, Communicator& comm, ReduceOp op, Site site) {
  return reduce_scatter_v(x, {}, comm, op, site);
}
Var reduce_scatter_v(const Var& x, const Rows& rows, Communicator& comm, ReduceOp op, Site site) {
  return run_linear(ReduceScatter{rows, op}, x, comm, site);
}
Var reduce(const Var& x, GroupRank root, Communicator& comm, ReduceOp op, Site site) {
  return run_linear(Reduce{root, op}, x, comm, site);
}
Var broadcast(const Var& x, GroupRank root, Communicator& comm, Site site) {
  return run_linear(Broadcast{root}, x, comm, site);
}

Var all_gather(const Var& x, Communicator& comm, Site site) { return run_linear(AllGather{}, x, comm, site); }
Var all_gather_v(const Var& x, const Rows& rows, Communicator& comm, Site site) {
  return run_linear(AllGather{rows}, x, comm, site);
}
Var gather(const Var& x, GroupRank root, Communicator& comm, Site site) {
  return run_linear(Gather{root}, x, comm, site);
}
Var gather_v(const Var& x, const Rows& rows, GroupRank root, Communicator& comm, Site site) {
  return run_linear(Gather{root, rows}, x, comm, site);
}
Var scatter(const Var& x, GroupRank root, Communicator& comm, Site site) {
  return run_linear(Scatter{root}, x, comm, site);
}
Var scatter_v(const Var& x, const Rows& rows, GroupRank root, Communicator& comm, Site site) {
  return run_linear(Scatter{root, rows}, x, comm, site);
}
Var all_to_all(const Var& x, Communicator& comm, Site site) { return run_linear(AllToAll{}, x, comm, site); }
Var all_to_all_v(const Var& x, const Counts& counts, Communicator& comm, Site site) {
  return run_linear(AllToAll{counts}, x, comm, site);
}

Var permute(const Var& x, const Sources& source, Communicator& comm, Site site) {
  return run_linear(Permute{source}, x, comm, site);
}
Var shift(const Var& x, int by, Communicator& comm, Site site) {
  Sources source;
  for (int r = 0; r < comm.size(); ++r) source.push_back(((r - by) % comm.size() + comm.size()) % comm.size());
  return permute(x, source, comm, site);
}

Var send(const Var& x, GroupRank to, Communicator& comm, Site site) {
  check_movable(send_op, x, comm, Passage::message);
  comm.send(x.value(), to, site);
  const auto pullback = [=, &comm, tape = x.tape()](const Var&) {
    return receive(*tape, x.shape(), x.dtype(), x.device(), to, comm, site);
  };
  return collective_result(record(send_op, Tensor({0}, x.dtype(), x.device()), from(x, pullback)), comm, V);
}
Var receive(Tape& tape, const Shape& shape, DType dtype, Device device, GroupRank source, Communicator& comm,
            Site site) {
  const Var message = tape.constant(Tensor({0}, dtype, device));  // gives the op an input on the tape
  const auto pullback = [=, &comm](const Var& g) { return send(g, source, comm, site); };
  return collective_result(
      record(receive_op, comm.receive(shape, dtype, device, source, site), from(message, pullback)), comm, V);
}

Var scan(const Var& x, Communicator& comm, ReduceOp op, Site site) {
  if (op == ReduceOp::sum || op == ReduceOp::mean) return run_linear(Scan{op}, x, comm, site);
  check_movable(linear_op<Scan>, x, comm, Passage::nonlinear);
  const Var all = as_varying(all_gather(reshape(x, x.shape().with_inserted(0, 1)), comm, site), comm);
  const Var before = slice(all, 0, 0, comm.rank().value + 1);
  switch (op) {
    case ReduceOp::product: return prod(before, 0);
    case ReduceOp::maximum: return max(before, 0);
    default: return min(before, 0);
  }
}
Var exscan(const Var& x, Communicator& comm, Site site) { return run_linear(Exscan{}, x, comm, site); }

}  // namespace weft
