// The primitive pairs: each is one meeting of the group forward and one backward. Their cases are in cases.cpp; what is
// composed of them is in composed.cpp.
#include "collectives/ops.h"

#include "collectives/spreads.h"
#include "engine/ops/elementwise.h"
#include "engine/ops/reduce.h"
#include "engine/ops/shape_ops.h"
#include "engine/record.h"

namespace weft {
namespace {

// Collectives bring distributed cases of the same name instead of samples, and always replay.
struct CollectiveOp : Op {
  explicit CollectiveOp(std::string name) : Op(std::move(name), {}, Algebra::own, Replay::always) {}
};
const CollectiveOp all_reduce_op{"all_reduce"}, all_reduce_extreme_op{"all_reduce extreme"},
    all_reduce_product_op{"all_reduce product"}, reduce_scatter_op{"reduce_scatter"}, reduce_op{"reduce"},
    scan_op{"scan"}, exscan_op{"exscan"}, all_gather_op{"all_gather"}, gather_op{"gather"}, scatter_op{"scatter"},
    broadcast_op{"broadcast"}, all_to_all_op{"all_to_all"}, permute_op{"permute"}, send_op{"send"},
    receive_op{"receive"};

Rows equal_rows(const Communicator& comm, int64_t each) { return Rows(static_cast<size_t>(comm.size()), each); }

constexpr Spread R = Spread::replicated, V = Spread::varying, P = Spread::partial;

// What may go into a sum over ranks: parts, or each rank's own. A value that all ranks hold would be counted once per
// rank.
void summable(const Op& op, const Var& x, const Communicator& comm) {
  require(x.defined(), op.name, ": the input is an empty Var");
  expect_spread(op.name, x, comm, {P, V}, "all ranks hold this value already, so it would be counted once per rank");
}
// What is moved whole: a part of a sum must be completed before, and an Invariant value given to each rank to use by
// itself.
void movable(const Op& op, const Var& x, const Communicator& comm) {
  require(x.defined(), op.name, ": the input is an empty Var");
  expect_spread(op.name, x, comm, {R, V},
                "complete a Partial sum with all_reduce or reduce_scatter first, vary() an Invariant value");
}

enum class End : uint8_t { first, last };  // of the ranks, where a scan starts

Var scan(const Var& x, Communicator& comm, End end, Site site) {
  Tensor y =
      end == End::first ? comm.scan(x.value(), ReduceOp::sum, site) : comm.reverse_scan(x.value(), ReduceOp::sum, site);
  const End other = end == End::first ? End::last : End::first;
  return spread_as(record(scan_op, y, from(x, [=, &comm](const Var& g) { return scan(g, comm, other, site); })), comm,
                   V);
}
Var exscan(const Var& x, Communicator& comm, End end, Site site) {
  Tensor y = end == End::first ? comm.exscan(x.value(), ReduceOp::sum, site)
                               : comm.reverse_exscan(x.value(), ReduceOp::sum, site);
  const End other = end == End::first ? End::last : End::first;
  return spread_as(record(exscan_op, y, from(x, [=, &comm](const Var& g) { return exscan(g, comm, other, site); })),
                   comm, V);
}

// Ranks that attain the extreme share its gradient equally, so that the shares add up to one. Nobody attains a NaN:
// every rank's gradient is then NaN, too.
Var all_reduce_extreme(const Var& x, Communicator& comm, ReduceOp op, Site site) {
  movable(all_reduce_extreme_op, x, comm);
  return spread_as(record(all_reduce_extreme_op, comm.all_reduce(x.value(), op, site),
                          from(x,
                               [=, &comm](const Var& g, const Var& y) {
                                 const Tensor attained = equal(x.value(), y.value()).to(x.dtype());
                                 const Var share = Var(attained) / Var(comm.all_reduce(attained, ReduceOp::sum, site));
                                 return all_reduce(g, comm, ReduceOp::sum, site) * share;
                               })),
                   comm, R);
}

// The other ranks' product is taken by multiplying, not by dividing, so zeros are exact.
Var all_reduce_product(const Var& x, Communicator& comm, Site site) {
  expect_spread(all_reduce_product_op.name, x, comm, {V}, "all ranks hold this value already; take its power instead");
  return spread_as(
      record(all_reduce_product_op, comm.all_reduce(x.value(), ReduceOp::product, site),
             from(x,
                  [=, &comm](const Var& g) {
                    const Var all = as_varying(all_gather(reshape(x, x.shape().with_inserted(0, 1)), comm, site), comm);
                    const int64_t me = comm.rank().value;
                    const Var others = concat({slice(all, 0, 0, me), slice(all, 0, me + 1, comm.size())}, 0);
                    return all_reduce(g, comm, ReduceOp::sum, site) * prod(others, 0);
                  })),
      comm, R);
}

Var zeros_like(const Var& x) { return Tensor::zeros(x.shape(), x.dtype(), x.device()); }

Var permuted(const Var& x, const Sources& source, Communicator& comm, bool back, Site site) {
  Tensor y = back ? comm.permute_back(x.value(), source, site) : comm.permute(x.value(), source, site);
  return spread_as(
      record(permute_op, y, from(x, [=, &comm](const Var& g) { return permuted(g, source, comm, !back, site); })), comm,
      V);
}

std::vector<Rows> swapped(const std::vector<Rows>& counts) {
  std::vector<Rows> result = counts;
  for (size_t r = 0; r < counts.size(); ++r)
    for (size_t s = 0; s < counts.size(); ++s) result[s][r] = counts[r][s];
  return result;
}

}  // namespace

Var all_reduce(const Var& x, Communicator& comm, ReduceOp op, Site site) {
  if (op == ReduceOp::maximum || op == ReduceOp::minimum) return all_reduce_extreme(x, comm, op, site);
  if (op == ReduceOp::product) return all_reduce_product(x, comm, site);
  summable(all_reduce_op, x, comm);
  return spread_as(record(all_reduce_op, comm.all_reduce(x.value(), op, site),
                          from(x, [=, &comm](const Var& g) { return all_reduce(g, comm, op, site); })),
                   comm, R);
}

Var reduce_scatter(const Var& x, Communicator& comm, ReduceOp op, Site site) {
  require(x.shape().rank() > 0 && x.shape()[0] % comm.size() == 0, "reduce_scatter: axis 0 of ", x.shape(),
          " does not divide over ", comm.size(), " ranks; use reduce_scatter_v");
  return reduce_scatter_v(x, equal_rows(comm, x.shape()[0] / comm.size()), comm, op, site);
}
Var reduce_scatter_v(const Var& x, const Rows& rows, Communicator& comm, ReduceOp op, Site site) {
  summable(reduce_scatter_op, x, comm);
  require(!x.tracked() || op == ReduceOp::sum || op == ReduceOp::mean, "reduce_scatter: the ", op,
          " has no gradient here; take all_reduce and slice it");
  const double scale = 1.0 / comm.size();
  return spread_as(record(reduce_scatter_op, comm.reduce_scatter_v(x.value(), rows, op, site),
                          from(x,
                               [=, &comm](const Var& g) {
                                 return all_gather_v(op == ReduceOp::mean ? g * scale : g, rows, comm, site);
                               })),
                   comm, V);
}

Var all_gather(const Var& x, Communicator& comm, Site site) {
  movable(all_gather_op, x, comm);
  require(x.shape().rank() > 0, "all_gather: a scalar has no axis 0; reshape it to (1)");
  return spread_as(record(all_gather_op, comm.all_gather(x.value(), site),
                          from(x, [=, &comm](const Var& g) { return reduce_scatter(g, comm, ReduceOp::sum, site); })),
                   comm, R);
}
Var all_gather_v(const Var& x, const Rows& rows, Communicator& comm, Site site) {
  movable(all_gather_op, x, comm);
  return spread_as(
      record(all_gather_op, comm.all_gather_v(x.value(), rows, site),
             from(x, [=, &comm](const Var& g) { return reduce_scatter_v(g, rows, comm, ReduceOp::sum, site); })),
      comm, R);
}

Var broadcast(const Var& x, GroupRank root, Communicator& comm, Site site) {
  movable(broadcast_op, x, comm);
  return spread_as(record(broadcast_op, comm.broadcast(x.value(), root, site),
                          from(x, [=, &comm](const Var& g) { return reduce(g, root, comm, ReduceOp::sum, site); })),
                   comm, R);
}
Var reduce(const Var& x, GroupRank root, Communicator& comm, ReduceOp op, Site site) {
  summable(reduce_op, x, comm);
  require(!x.tracked() || op == ReduceOp::sum || op == ReduceOp::mean, "reduce: the ", op,
          " has no gradient here; take all_reduce and use it on the root");
  const double scale = 1.0 / comm.size();
  return spread_as(record(reduce_op, comm.reduce(x.value(), root, op, site),
                          from(x,
                               [=, &comm](const Var& g) {
                                 const Var all = broadcast(g, root, comm, site);
                                 return op == ReduceOp::mean ? all * scale : all;
                               })),
                   comm, V);
}

Var gather(const Var& x, GroupRank root, Communicator& comm, Site site) {
  require(x.shape().rank() > 0, "gather: a scalar has no axis 0; reshape it to (1)");
  return gather_v(x, equal_rows(comm, x.shape()[0]), root, comm, site);
}
Var gather_v(const Var& x, const Rows& rows, GroupRank root, Communicator& comm, Site site) {
  movable(gather_op, x, comm);
  return spread_as(record(gather_op, comm.gather_v(x.value(), rows, root, site),
                          from(x, [=, &comm](const Var& g) { return scatter_v(g, rows, root, comm, site); })),
                   comm, V);
}
Var scatter(const Var& x, GroupRank root, Communicator& comm, Site site) {
  require(x.shape().rank() > 0 && x.shape()[0] % comm.size() == 0, "scatter: axis 0 of ", x.shape(),
          " does not divide over ", comm.size(), " ranks; use scatter_v");
  return scatter_v(x, equal_rows(comm, x.shape()[0] / comm.size()), root, comm, site);
}
Var scatter_v(const Var& x, const Rows& rows, GroupRank root, Communicator& comm, Site site) {
  movable(scatter_op, x, comm);
  return spread_as(record(scatter_op, comm.scatter_v(x.value(), rows, root, site),
                          from(x,
                               [=, &comm](const Var& g) {
                                 const Var all = gather_v(g, rows, root, comm, site);
                                 return comm.rank() == root ? all : zeros_like(x);
                               })),
                   comm, V);
}

Var all_to_all(const Var& x, Communicator& comm, Site site) {
  movable(all_to_all_op, x, comm);
  return spread_as(record(all_to_all_op, comm.all_to_all(x.value(), site),
                          from(x, [=, &comm](const Var& g) { return all_to_all(g, comm, site); })),
                   comm, V);
}
Var all_to_all_v(const Var& x, const std::vector<Rows>& counts, Communicator& comm, Site site) {
  movable(all_to_all_op, x, comm);
  return spread_as(record(all_to_all_op, comm.all_to_all_v(x.value(), counts, site),
                          from(x, [=, &comm](const Var& g) { return all_to_all_v(g, swapped(counts), comm, site); })),
                   comm, V);
}

Var permute(const Var& x, const Sources& source, Communicator& comm, Site site) {
  movable(permute_op, x, comm);
  return permuted(x, source, comm, false, site);
}
Var shift(const Var& x, int by, Communicator& comm, Site site) {
  Sources source;
  for (int r = 0; r < comm.size(); ++r) source.push_back(((r - by) % comm.size() + comm.size()) % comm.size());
  return permute(x, source, comm, site);
}

Var send(const Var& x, GroupRank to, Communicator& comm, Site site) {
  movable(send_op, x, comm);
  comm.send(x.value(), to, site);
  return spread_as(
      record(send_op, Tensor({0}, x.dtype(), x.device()),
             from(x, [=, &comm, tape = x.tape()](
                         const Var&) { return receive(*tape, x.shape(), x.dtype(), x.device(), to, comm, site); })),
      comm, V);
}
Var receive(Tape& tape, const Shape& shape, DType dtype, Device device, GroupRank source, Communicator& comm,
            Site site) {
  const Var message = tape.constant(Tensor({0}, dtype, device));  // a place on the tape; nothing flows to it
  return spread_as(record(receive_op, comm.receive(shape, dtype, device, source, site),
                          from(message, [=, &comm](const Var& g) { return send(g, source, comm, site); })),
                   comm, V);
}

Var scan(const Var& x, Communicator& comm, ReduceOp op, Site site) {
  movable(scan_op, x, comm);
  if (op == ReduceOp::sum) return scan(x, comm, End::first, site);
  const Var all = as_varying(all_gather(reshape(x, x.shape().with_inserted(0, 1)), comm, site), comm);
  const Var before = slice(all, 0, 0, comm.rank().value + 1);
  switch (op) {
    case ReduceOp::product: return prod(before, 0);
    case ReduceOp::maximum: return max(before, 0);
    case ReduceOp::minimum: return min(before, 0);
    default: return mean(before, 0);
  }
}
Var exscan(const Var& x, Communicator& comm, Site site) {
  movable(exscan_op, x, comm);
  return exscan(x, comm, End::first, site);
}

}  // namespace weft
