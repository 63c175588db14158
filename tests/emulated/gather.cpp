// SPDX-License-Identifier: Apache-2.0
#include "tests/emulated/gather.h"

#include <algorithm>

#include "weft/collectives/linear_collective.h"

namespace weft::emulated {
namespace {

const CollectiveOp gather_op{"emulated gather"}, raw_all_reduce_op{"emulated raw all_reduce"};

Tensor only_once(const Var& g) {
  require(!g.tracked(), "an emulated gradient cannot be differentiated again");
  return g.value();
}

Tensor gradient_of_own_rows(const Tensor& g, const Rows& rows, Adjoint adjoint, Communicator& comm, Site site) {
  const auto me = static_cast<size_t>(comm.rank().value);
  const int64_t first = rows_before(rows, comm.rank().value);
  const Tensor own = g.slice(first, first + rows[me]);
  switch (adjoint) {
    case Adjoint::none: return Tensor::zeros(own.shape(), own.dtype(), own.device());
    case Adjoint::own_slot: return own;
    case Adjoint::own_slot_times_ranks: return affine(own, comm.size(), 0).value();
    case Adjoint::all_reduced_own_slots: return comm.all_reduce(own, ReduceOp::sum, site);
    case Adjoint::mean: return comm.reduce_scatter_v(g, rows, ReduceOp::mean, site);
    case Adjoint::sum: break;
  }
  return comm.reduce_scatter_v(g, rows, ReduceOp::sum, site);
}

}  // namespace

Var gather(const Var& x, const Rows& rows, Adjoint adjoint, Communicator& comm, Site site) {
  check_movable(gather_op, x, comm);
  require(adjoint != Adjoint::all_reduced_own_slots || std::equal(rows.begin() + 1, rows.end(), rows.begin()),
          "emulated gather: the own slots of all ranks are added, but ranks have different numbers of rows");
  const auto pullback = [=, &comm](const Var& g) {
    return Var(gradient_of_own_rows(only_once(g), rows, adjoint, comm, site));
  };
  return collective_result(record(gather_op, comm.all_gather_v(x.value(), rows, site), from(x, pullback)), comm,
                           Placement::replicated);
}

Var raw_all_reduce(const Var& x, Communicator& comm, Site site) {
  check_summable(raw_all_reduce_op, x, comm);
  const auto pullback = [](const Var& g) { return Var(only_once(g)); };
  return collective_result(
      record(raw_all_reduce_op, comm.all_reduce(x.value(), ReduceOp::sum, site), from(x, pullback)), comm,
      Placement::replicated);
}

}  // namespace weft::emulated
