// The differentiable collectives: linear ones by the table of verbs.h, the others with pullbacks of their own. Their
// cases are in cases.cpp; what is composed of them is in composed.cpp.
#include "collectives/ops.h"

#include "collectives/exchange.h"
#include "engine/ops/elementwise.h"
#include "engine/ops/reduce.h"
#include "engine/ops/shape_ops.h"

namespace weft {
namespace {

const CollectiveOp all_reduce_op{"all_reduce"}, all_reduce_extreme_op{"all_reduce extreme"},
    all_reduce_product_op{"all_reduce product"}, reduce_scatter_op{"reduce_scatter"}, reduce_op{"reduce"},
    scan_op{"scan"}, exscan_op{"exscan"}, all_gather_op{"all_gather"}, gather_op{"gather"}, scatter_op{"scatter"},
    broadcast_op{"broadcast"}, all_to_all_op{"all_to_all"}, permute_op{"permute"}, send_op{"send"},
    receive_op{"receive"};

using namespace spread_letters;

// Ranks that attain the extreme share its gradient equally, so that the shares add up to one. Nobody attains a NaN:
// every rank's gradient is then NaN, too.
Var all_reduce_extreme(const Var& x, Communicator& comm, ReduceOp op, Site site) {
  announce(all_reduce_extreme_op.name, x, comm, site);
  movable(all_reduce_extreme_op, x, comm);
  const auto pullback = [=, &comm](const Var& g, const Var& y) {
    const Tensor attained = equal(x.value(), y.value()).to(x.dtype());
    const Tensor owners = comm.all_reduce(attained, ReduceOp::sum, site);
    return all_reduce(g, comm, ReduceOp::sum, site) * (derived(attained, x) / same_everywhere(owners));
  };
  return spread_as(record(all_reduce_extreme_op, comm.all_reduce(x.value(), op, site), from(x, pullback)), comm, R);
}

// The other ranks' product is taken by multiplying, not by dividing, so zeros are exact.
Var all_reduce_product(const Var& x, Communicator& comm, Site site) {
  announce(all_reduce_product_op.name, x, comm, site);
  expect_spread(all_reduce_product_op.name, x, comm, {V}, "all ranks hold this value already; take its power instead");
  const auto pullback = [=, &comm](const Var& g) {
    const Var all = as_varying(all_gather(reshape(x, x.shape().with_inserted(0, 1)), comm, site), comm);
    const int64_t me = comm.rank().value;
    const Var others = concat({slice(all, 0, 0, me), slice(all, 0, me + 1, comm.size())}, 0);
    return all_reduce(g, comm, ReduceOp::sum, site) * prod(others, 0);
  };
  return spread_as(
      record(all_reduce_product_op, comm.all_reduce(x.value(), ReduceOp::product, site), from(x, pullback)), comm, R);
}

}  // namespace

const CollectiveOp& op_of(const AllReduce&) { return all_reduce_op; }
const CollectiveOp& op_of(const ReduceScatter&) { return reduce_scatter_op; }
const CollectiveOp& op_of(const AllGather&) { return all_gather_op; }
const CollectiveOp& op_of(const Reduce&) { return reduce_op; }
const CollectiveOp& op_of(const Broadcast&) { return broadcast_op; }
const CollectiveOp& op_of(const Gather&) { return gather_op; }
const CollectiveOp& op_of(const Scatter&) { return scatter_op; }
const CollectiveOp& op_of(const AllToAll&) { return all_to_all_op; }
const CollectiveOp& op_of(const Permute&) { return permute_op; }
const CollectiveOp& op_of(const Scan& scan) { return scan.inclusive ? scan_op : exscan_op; }

void summable(const Op& op, const Var& x, const Communicator& comm) {
  require(x.defined(), op.name, ": the input is an empty Var");
  expect_spread(op.name, x, comm, {P, V}, "all ranks hold this value already, so it would be counted once per rank");
}
void movable(const Op& op, const Var& x, const Communicator& comm) {
  require(x.defined(), op.name, ": the input is an empty Var");
  expect_spread(op.name, x, comm, {R, V},
                "complete a Partial sum with all_reduce or reduce_scatter first, vary() an Invariant value");
}

Var all_reduce(const Var& x, Communicator& comm, ReduceOp op, Site site) {
  if (op == ReduceOp::maximum || op == ReduceOp::minimum) return all_reduce_extreme(x, comm, op, site);
  if (op == ReduceOp::product) return all_reduce_product(x, comm, site);
  return exchange(AllReduce{op}, x, comm, site);
}

Var reduce_scatter(const Var& x, Communicator& comm, ReduceOp op, Site site) {
  return reduce_scatter_v(x, {}, comm, op, site);
}
Var reduce_scatter_v(const Var& x, const Rows& rows, Communicator& comm, ReduceOp op, Site site) {
  return exchange(ReduceScatter{rows, op}, x, comm, site);
}
Var reduce(const Var& x, GroupRank root, Communicator& comm, ReduceOp op, Site site) {
  return exchange(Reduce{root, op}, x, comm, site);
}
Var broadcast(const Var& x, GroupRank root, Communicator& comm, Site site) {
  return exchange(Broadcast{root}, x, comm, site);
}

Var all_gather(const Var& x, Communicator& comm, Site site) { return exchange(AllGather{}, x, comm, site); }
Var all_gather_v(const Var& x, const Rows& rows, Communicator& comm, Site site) {
  return exchange(AllGather{rows}, x, comm, site);
}
Var gather(const Var& x, GroupRank root, Communicator& comm, Site site) {
  return exchange(Gather{root}, x, comm, site);
}
Var gather_v(const Var& x, const Rows& rows, GroupRank root, Communicator& comm, Site site) {
  return exchange(Gather{root, rows}, x, comm, site);
}
Var scatter(const Var& x, GroupRank root, Communicator& comm, Site site) {
  return exchange(Scatter{root}, x, comm, site);
}
Var scatter_v(const Var& x, const Rows& rows, GroupRank root, Communicator& comm, Site site) {
  return exchange(Scatter{root, rows}, x, comm, site);
}
Var all_to_all(const Var& x, Communicator& comm, Site site) { return exchange(AllToAll{}, x, comm, site); }
Var all_to_all_v(const Var& x, const Counts& counts, Communicator& comm, Site site) {
  return exchange(AllToAll{counts}, x, comm, site);
}

Var permute(const Var& x, const Sources& source, Communicator& comm, Site site) {
  return exchange(Permute{source}, x, comm, site);
}
Var shift(const Var& x, int by, Communicator& comm, Site site) {
  Sources source;
  for (int r = 0; r < comm.size(); ++r) source.push_back(((r - by) % comm.size() + comm.size()) % comm.size());
  return permute(x, source, comm, site);
}

Var send(const Var& x, GroupRank to, Communicator& comm, Site site) {
  movable(send_op, x, comm);
  comm.send(x.value(), to, site);
  const auto pullback = [=, &comm, tape = x.tape()](const Var&) {
    return receive(*tape, x.shape(), x.dtype(), x.device(), to, comm, site);
  };
  return spread_as(record(send_op, Tensor({0}, x.dtype(), x.device()), from(x, pullback)), comm, V);
}
Var receive(Tape& tape, const Shape& shape, DType dtype, Device device, GroupRank source, Communicator& comm,
            Site site) {
  const Var message = tape.constant(Tensor({0}, dtype, device));  // a place on the tape; nothing flows to it
  const auto pullback = [=, &comm](const Var& g) { return send(g, source, comm, site); };
  return spread_as(record(receive_op, comm.receive(shape, dtype, device, source, site), from(message, pullback)), comm,
                   V);
}

Var scan(const Var& x, Communicator& comm, ReduceOp op, Site site) {
  if (op == ReduceOp::sum || op == ReduceOp::mean) return exchange(Scan{.op = op}, x, comm, site);
  movable(scan_op, x, comm);
  const Var all = as_varying(all_gather(reshape(x, x.shape().with_inserted(0, 1)), comm, site), comm);
  const Var before = slice(all, 0, 0, comm.rank().value + 1);
  switch (op) {
    case ReduceOp::product: return prod(before, 0);
    case ReduceOp::maximum: return max(before, 0);
    default: return min(before, 0);
  }
}
Var exscan(const Var& x, Communicator& comm, Site site) { return exchange(Scan{false}, x, comm, site); }

}  // namespace weft
