// SPDX-License-Identifier: Apache-2.0
#include "weft/collectives/placement_conversions.h"

#include "weft/collectives/collectives.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/shape_ops.h"
#include "weft/engine/tape/record.h"

namespace weft {
namespace {

using namespace placement_letters;

struct Conversion : Op {  // communicates forward or backward, so it always runs in backward
  explicit Conversion(std::string name) : Op(std::move(name), {}, Algebra::own, Replay::always) {}
};
const Conversion vary_op{"vary"}, all_reduce_equal_op{"all_reduce_equal"}, all_gather_equal_op{"all_gather_equal"},
    own_rows_op{"own_rows"};
const Op keep_on_op{"keep_on", {}, Algebra::own}, as_invariant_op{"as_invariant", {}, Algebra::own};

}  // namespace

Var vary(const Var& x, Communicator& comm, Site site) {
  announce(vary_op.name, x, comm, site);
  expect_placement("vary", x, comm, {I}, "only Invariant values need it");
  const Var y =
      record(vary_op, x.value(), from(x, [=, &comm](const Var& g) { return all_reduce_equal(g, comm, site); }));
  return collective_result(y, comm, R);
}

Var all_reduce_equal(const Var& x, Communicator& comm, Site site) {
  announce(all_reduce_equal_op.name, x, comm, site);
  expect_placement("all_reduce_equal", x, comm, {P, V}, "its value is complete on every rank already", Passage::sum);
  const Var y = record(all_reduce_equal_op, comm.all_reduce(x.value(), ReduceOp::sum, site),
                       from(x, [=, &comm](const Var& g) { return vary(g, comm, site); }));
  return collective_result(y, comm, I);
}

Var all_gather_equal(const Var& x, const Rows& rows, Communicator& comm, Site site) {
  announce(all_gather_equal_op.name, x, comm, site);
  expect_placement("all_gather_equal", x, comm, {V}, "its value is complete on every rank already");
  const Var y = record(all_gather_equal_op, comm.run_on_tape(AllGather{rows}, x.value(), site),
                       from(x, [=, &comm](const Var& g) { return own_rows(g, rows, comm, site); }));
  return collective_result(y, comm, I);
}

Var own_rows(const Var& x, const Rows& rows, Communicator& comm, Site site) {
  expect_placement("own_rows", x, comm, {R, I},
                   "reduce_scatter takes rows of a sum, and Varying rows are a rank's own already");
  require(x.shape().rank() > 0 && x.shape()[0] == total_rows(rows), "own_rows: the counts say ", total_rows(rows),
          " rows, the tensor is ", x.shape());
  const bool equal_cotangents = has_placements(x) && placement_of(x, comm) == I;
  const int64_t begin = rows_before(rows, comm.rank().value), count = rows[static_cast<size_t>(comm.rank().value)];
  const Var y = record(own_rows_op, x.value().slice(begin, begin + count), from(x, [=, &comm](const Var& g) {
                         return equal_cotangents ? all_gather_equal(g, rows, comm, site) : padded_rows(g, rows, comm);
                       }));
  return collective_result(y, comm, V);
}

Var padded_rows(const Var& x, const Rows& rows, Communicator& comm) {
  expect_placement("padded_rows", x, comm, {V}, "only a rank's own rows can be a part of a sum of all ranks' rows");
  const int64_t before = rows_before(rows, comm.rank().value);
  return collective_result(pad(x, 0, before, total_rows(rows) - before - rows[static_cast<size_t>(comm.rank().value)]),
                           comm, P);
}

Var keep_on(const Var& x, GroupRank rank, Communicator& comm) {
  expect_placement("keep_on", x, comm, {R, I}, "only one of equal values can stand for their sum");
  const bool equal_cotangents = has_placements(x) && placement_of(x, comm) == I;
  const Var y = record(
      keep_on_op, comm.rank() == rank ? x.value() : Tensor::zeros(x.shape(), x.dtype(), x.device()),
      from(x, [=, &comm](const Var& g) { return equal_cotangents ? as_invariant(g, comm) : keep_on(g, rank, comm); }));
  return collective_result(y, comm, P);
}

Var as_invariant(const Var& x, Communicator& comm) {
  expect_placement("as_invariant", x, comm, {R},
                   "all_reduce_equal and all_gather_equal make an Invariant value of others");
  const Var y = record(as_invariant_op, x.value(), from(x, [&comm](const Var& g) { return keep_on(g, {0}, comm); }));
  return collective_result(y, comm, I);
}

}  // namespace weft
