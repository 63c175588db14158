// SPDX-License-Identifier: Apache-2.0
#pragma once
// A linear collective on the tape: its op, the check of its input, and its pullback, which runs its adjoint. This is
// one implementation for all verbs of verbs.h, as a whole and in two halves, and for any other type like these.
#include <algorithm>

#include "weft/collectives/group_placement.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/tape/record.h"

namespace weft {

// The tests of collectives use distributed cases instead of samples. Collectives always run in backward.
struct CollectiveOp : Op {
  explicit CollectiveOp(std::string name) : Op(std::move(name), {}, Algebra::own, Replay::always) {}
};
template <LinearCollective C> inline const CollectiveOp linear_op{C::op_name};

// Checks the input of a sum over ranks, which must be Partial or Varying: a value that all ranks hold would be counted
// once per rank.
void check_summable(const Op& op, const Var& x, const Communicator& comm);
// Checks the input of a mean, a maximum or another reduction of what ranks hold, which must be Varying: a rank holds a
// term of a Partial value, and not a value.
void check_reducible(const Op& op, const Var& x, const Communicator& comm, Passage passage);
// Checks the input of a collective that moves data: a Partial value must be summed before, and an Invariant value
// varied.
void check_movable(const Op& op, const Var& x, const Communicator& comm, Passage passage = Passage::linear);

template <LinearCollective C> void check_input(const C& collective, const Var& x, const Communicator& comm) {
  const ReduceOp op = reduction_of(collective);
  const bool linear = op == ReduceOp::sum || op == ReduceOp::mean;
  if constexpr (Reducing<C>)
    require(!x.tracked() || linear, C::op_name, ": the ", op, " has no gradient here; ", C::instead);
  const Passage passage = linear ? Passage::linear : Passage::nonlinear;
  if constexpr (!C::sums)
    check_movable(linear_op<C>, x, comm, passage);
  else if (op == ReduceOp::sum)
    check_summable(linear_op<C>, x, comm);
  else
    check_reducible(linear_op<C>, x, comm, passage);
}

// The verb with explicit counts of rows where its adjoint cannot derive them, because not every rank has the rows.
template <LinearCollective C> C with_explicit_rows(C collective, const Var& x, const Communicator& comm) {
  if constexpr (HasRows<C> && Rooted<C>) {
    const int64_t parts = C::divides ? comm.size() : 1;
    if (collective.rows.empty() && x.shape().rank() > 0 && x.shape()[0] % parts == 0)
      collective.rows = Rows(static_cast<size_t>(comm.size()), x.shape()[0] / parts);
  }
  return collective;
}

// The cotangent of the sum, from that of a mean.
template <LinearCollective C> Var cotangent_of_sum(const C& collective, const Var& g, const Communicator& comm) {
  if (reduction_of(collective) != ReduceOp::mean) return g;
  return g * (1.0 / std::max(terms(collective, comm.rank().value, comm.size()), 1));
}

// The gradient of an input of this shape, from the result of the adjoint. It ends with the last row that anybody reads;
// a rank whose rows nobody reads, such as one to which a root scatters, gets none back.
Var as_gradient(const Var& result, const Shape& shape);

// An adjoint that is not the transpose would give wrong gradients. The library's verbs are tested, a program's own are
// checked whenever they are recorded.
template <LinearCollective C> void expect_transpose(const C& collective, const Communicator& comm) {
  if (collective.verb() != Verb::custom) return;
  const auto adjoint = collective.adjoint();
  const auto transposes = [&](int reader, int source) {
    const Portion there = collective.portion(reader, source), back = adjoint.portion(source, reader);
    return there.count == back.count && (there.count == 0 || (there.from == back.to && there.to == back.from));
  };
  const int me = comm.rank().value;
  for (int r = 0; r < comm.size(); ++r)
    require(transposes(me, r) && transposes(r, me), C::op_name, ": its adjoint is not its transpose: what rank ", me,
            " and rank ", r, " of the group exchange does not go back to where it came from");
}

template <LinearCollective C> Var run_linear(const C& requested, const Var& x, Communicator& comm, Site site) {
  announce(C::op_name, x, comm, site);
  check_input(requested, x, comm);
  expect_transpose(requested, comm);
  const C collective = with_explicit_rows(requested, x, comm);
  const auto pullback = [=, &comm, shape = x.shape()](const Var& g) {
    return as_gradient(run_linear(collective.adjoint(), cotangent_of_sum(collective, g, comm), comm, site), shape);
  };
  const Var result = record(linear_op<C>, comm.run_on_tape(collective, x.value(), site), from(x, pullback));
  return collective_result(result, comm, C::result);
}

}  // namespace weft
