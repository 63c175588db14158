// SPDX-License-Identifier: Apache-2.0
#pragma once
// A linear collective on the tape: its op, the check of its input, and its pullback, which runs its adjoint. This is
// one implementation for all verbs of verbs.h, as a whole and in two halves.
#include <algorithm>

#include "weft/collectives/group_placement.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/tape/record.h"

namespace weft {

// The tests of collectives use distributed cases instead of samples. Collectives always run in backward.
struct CollectiveOp : Op {
  explicit CollectiveOp(std::string name) : Op(std::move(name), {}, Algebra::own, Replay::always) {}
};
const CollectiveOp& op_of(const AllReduce&);
const CollectiveOp& op_of(const ReduceScatter&);
const CollectiveOp& op_of(const AllGather&);
const CollectiveOp& op_of(const Reduce&);
const CollectiveOp& op_of(const Broadcast&);
const CollectiveOp& op_of(const Gather&);
const CollectiveOp& op_of(const Scatter&);
const CollectiveOp& op_of(const AllToAll&);
const CollectiveOp& op_of(const Permute&);
const CollectiveOp& op_of(const Scan&);

// Checks the input of a sum over ranks, which must be Partial or Varying: a value that all ranks hold would be counted
// once per rank.
void check_summable(const Op& op, const Var& x, const Communicator& comm);
// Checks the input of a collective that moves data: a Partial value must be summed before, and an Invariant value
// varied.
void check_movable(const Op& op, const Var& x, const Communicator& comm);

template <class Verb>
concept Reducing = requires(Verb verb) {
  verb.op;
};

template <class Verb> void check_input(const Verb& verb, const Var& x, const Communicator& comm) {
  if constexpr (Reducing<Verb>)
    require(!x.tracked() || verb.op == ReduceOp::sum || verb.op == ReduceOp::mean, op_of(verb).name, ": the ", verb.op,
            " has no gradient here; ", Verb::instead);
  constexpr bool sums =
      std::is_same_v<Verb, AllReduce> || std::is_same_v<Verb, ReduceScatter> || std::is_same_v<Verb, Reduce>;
  (sums ? check_summable : check_movable)(op_of(verb), x, comm);
}

// The verb with explicit counts of rows where its adjoint cannot derive them, because not every rank has the rows.
template <class Verb> Verb with_explicit_rows(Verb verb, const Var& x, const Communicator& comm) {
  if constexpr (std::is_same_v<Verb, Gather> || std::is_same_v<Verb, Scatter>) {
    const int64_t parts = std::is_same_v<Verb, Scatter> ? comm.size() : 1;
    if (verb.rows.empty() && x.shape().rank() > 0 && x.shape()[0] % parts == 0)
      verb.rows = Rows(static_cast<size_t>(comm.size()), x.shape()[0] / parts);
  }
  return verb;
}

// The cotangent of the sum, from that of a mean.
template <class Verb> Var cotangent_of_sum(const Verb& verb, const Var& g, const Communicator& comm) {
  if constexpr (Reducing<Verb>)
    if (verb.op == ReduceOp::mean) return g * (1.0 / std::max(verb.terms(comm.rank().value, comm.size()), 1));
  return g;
}

// The gradient of an input of this shape, from the result of the adjoint. Scatter reads the root's input only, so the
// gradients of the others are zeros.
template <class Verb> Var as_gradient(const Verb& verb, const Var& result, const Shape& shape, Communicator& comm) {
  if constexpr (std::is_same_v<Verb, Scatter>)
    if (comm.rank() != verb.root) return replicated_constant(Tensor::zeros(shape, result.dtype(), result.device()));
  return result;
}

template <class Verb> Var run_linear(const Verb& requested, const Var& x, Communicator& comm, Site site) {
  announce(op_of(requested).name, x, comm, site);
  check_input(requested, x, comm);
  const Verb verb = with_explicit_rows(requested, x, comm);
  const auto pullback = [=, &comm, shape = x.shape()](const Var& g) {
    return as_gradient(verb, run_linear(verb.adjoint(), cotangent_of_sum(verb, g, comm), comm, site), shape, comm);
  };
  return with_placement(record(op_of(verb), comm.run(verb, x.value(), site), from(x, pullback)), comm, Verb::result);
}

}  // namespace weft
