#pragma once
// A linear collective on the tape: its op, what it accepts, and its pullback, which is its adjoint. Once for all of
// verbs.h, at once and in two halves.
#include <algorithm>

#include "collectives/ops.h"
#include "collectives/spreads.h"
#include "engine/ops/elementwise.h"
#include "engine/record.h"

namespace weft {

// Collectives bring distributed cases that compute them instead of samples, and always replay.
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

// What may go into a sum over ranks: parts, or each rank's own. A value that all ranks hold would be counted once per
// rank.
void summable(const Op& op, const Var& x, const Communicator& comm);
// What is moved whole: a part of a sum must be completed before, and an Invariant value given to each rank to use by
// itself.
void movable(const Op& op, const Var& x, const Communicator& comm);

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
  (sums ? summable : movable)(op_of(verb), x, comm);
}

// With its counts of rows spelled out where the adjoint could not tell them, because the rows are not on every rank.
template <class Verb> Verb spelled_out(Verb verb, const Var& x, const Communicator& comm) {
  if constexpr (std::is_same_v<Verb, Gather> || std::is_same_v<Verb, Scatter>) {
    const int64_t parts = std::is_same_v<Verb, Scatter> ? comm.size() : 1;
    if (verb.rows.empty() && x.shape().rank() > 0 && x.shape()[0] % parts == 0)
      verb.rows = Rows(static_cast<size_t>(comm.size()), x.shape()[0] / parts);
  }
  return verb;
}

// The cotangent of the sum that a mean is made of.
template <class Verb> Var of_the_sum(const Verb& verb, const Var& g, const Communicator& comm) {
  if constexpr (Reducing<Verb>)
    if (verb.op == ReduceOp::mean) return g * (1.0 / std::max(verb.terms(comm.rank().value, comm.size()), 1));
  return g;
}

// What the adjoint brings, as the gradient of a value of this shape. Only the root's value was scattered; the others'
// were not looked at.
template <class Verb> Var as_gradient(const Verb& verb, const Var& brought, const Shape& shape, Communicator& comm) {
  if constexpr (std::is_same_v<Verb, Scatter>)
    if (comm.rank() != verb.root) return same_everywhere(Tensor::zeros(shape, brought.dtype(), brought.device()));
  return brought;
}

template <class Verb> Var exchange(const Verb& asked, const Var& x, Communicator& comm, Site site) {
  announce(op_of(asked).name, x, comm, site);
  check_input(asked, x, comm);
  const Verb verb = spelled_out(asked, x, comm);
  const auto pullback = [=, &comm, shape = x.shape()](const Var& g) {
    return as_gradient(verb, exchange(verb.adjoint(), of_the_sum(verb, g, comm), comm, site), shape, comm);
  };
  return spread_as(record(op_of(verb), comm.run(verb, x.value(), site), from(x, pullback)), comm, Verb::result);
}

}  // namespace weft
