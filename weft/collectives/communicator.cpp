// SPDX-License-Identifier: Apache-2.0
// Which elements each rank exposes and reads in every collective. collective_call.cpp moves them.
#include "weft/collectives/communicator.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "weft/collectives/run_ranks.h"
#include "weft/engine/kernels/backend.h"

namespace weft {
namespace {

int64_t row_size(const Tensor& x) { return x.shape().product(1, x.shape().rank()); }
size_t bytes_of_rows(int64_t rows, const Tensor& x) {
  return static_cast<size_t>(x.shape().with(0, rows).size()) * size_of(x.dtype());
}
int64_t of(const Rows& rows, GroupRank rank) { return rows[static_cast<size_t>(rank.value)]; }

void check_reducible(const Tensor& x, ReduceOp op) {
  require(op != ReduceOp::mean || is_floating(x.dtype()), "mean: a floating type is needed, not ", x.dtype());
}

double neutral(ReduceOp op, DType dtype) {
  if (op == ReduceOp::product) return 1;
  if (op != ReduceOp::maximum && op != ReduceOp::minimum) return 0;
  require(is_floating(dtype), "exscan: ", op, " of ", dtype, " has no neutral element for the rank without others");
  const double infinity = std::numeric_limits<double>::infinity();
  return op == ReduceOp::maximum ? -infinity : infinity;
}

Tensor nothing_like(const Tensor& x) {
  Tensor nothing({0}, x.dtype(), x.device());
  nothing.set_origin(x.origin());
  return nothing;
}

// Describes a call: the one with counts of rows if there are any.
Call described(Verb even, Verb uneven, const Tensor& x, Site site, const Rows& rows, ReduceOp op = ReduceOp::sum,
               int root = -1, bool rows_differ = false) {
  if (rows.empty()) return describe(even, x, site, op, root);
  return with_counts(describe(uneven, x, site, op, root, rows_differ), rows);
}

}  // namespace

Communicator::Communicator(std::unique_ptr<Transport> transport, Reductions reductions)
    : transport_(std::move(transport)), reductions_(reductions), everyone_(static_cast<size_t>(transport_->size())) {
  std::iota(everyone_.begin(), everyone_.end(), 0);
}

Communicator::Ranks Communicator::ranks(int first, int last) const {
  return first < last ? Ranks(everyone_.begin() + first, everyone_.begin() + last) : Ranks();
}

void Communicator::check_rank(const char* verb, GroupRank rank) const {
  require(rank.value >= 0 && rank.value < size(), verb, ": there is no rank ", rank, " in a group of ", size(),
          " ranks");
}

Rows Communicator::checked_rows(const char* verb, const Rows& rows, const Tensor& x, bool whole) const {
  const auto ranks = static_cast<size_t>(size());
  if (rows.empty()) {
    require(x.shape().rank() > 0, verb, ": a scalar has no axis 0; reshape it to (1)");
    require(!whole || x.shape()[0] % size() == 0, verb, ": axis 0 of ", x.shape(), " does not divide over ", size(),
            " ranks; use ", verb, "_v");
    return Rows(ranks, whole ? x.shape()[0] / size() : x.shape()[0]);
  }
  require(rows.size() == ranks, verb, "_v: ", rows.size(), " counts of rows for ", size(), " ranks");
  require(x.shape().rank() > 0, verb, "_v: a scalar has no axis 0");
  for (const int64_t count : rows) require(count >= 0, verb, "_v: a count of ", count, " rows");
  const int64_t expected = whole ? total_rows(rows) : of(rows, rank());
  require(x.shape()[0] == expected, verb, "_v: the counts say ", expected, " rows, the tensor is ", x.shape());
  return rows;
}

Tensor Communicator::run(const AllReduce& verb, const Tensor& x, Site site) {
  Tensor y = Tensor::like(x);
  all_reduce(x, y, verb.op, site);
  return y;
}

void Communicator::all_reduce(const Tensor& x, Tensor& y, ReduceOp op, Site site) {
  check_reducible(x, op);
  require(y.shape() == x.shape() && y.dtype() == x.dtype() && y.device() == x.device(), "all_reduce: the result ",
          y.dtype(), " ", y.shape(), " does not fit ", x.dtype(), " ", x.shape());
  weft::all_reduce(*transport_, describe(Verb::all_reduce, x, site, op), x, y, everyone_,
                   reductions_ == Reductions::fast);
}

CollectiveCall Communicator::plan(const AllReduce& verb, Tensor x, Site site) const {
  check_reducible(x, verb.op);
  const Call call = describe(Verb::all_reduce, x, site, verb.op);
  Tensor y = Tensor::like(x);
  return CollectiveCall(call, std::move(x), y, {0, everyone_, verb.op});
}

CollectiveCall Communicator::plan(const ReduceScatter& verb, Tensor x, Site site) const {
  check_reducible(x, verb.op);
  const Rows rows = checked_rows("reduce_scatter", verb.rows, x, true);
  Tensor y(x.shape().with(0, of(rows, rank())), x.dtype(), x.device());
  const int64_t begin = rows_before(rows, rank().value) * row_size(x);
  const Call call = described(Verb::reduce_scatter, Verb::reduce_scatter_v, x, site, verb.rows, verb.op);
  return CollectiveCall(call, std::move(x), y, {begin, everyone_, verb.op});
}

CollectiveCall Communicator::plan(const Reduce& verb, Tensor x, Site site) const {
  check_reducible(x, verb.op);
  check_rank("reduce", verb.root);
  const Call call = describe(Verb::reduce, x, site, verb.op, verb.root.value);
  Tensor y = Tensor::zeros(x.shape(), x.dtype(), x.device());
  return CollectiveCall(call, std::move(x), y, {0, rank() == verb.root ? everyone_ : Ranks(), verb.op});
}

CollectiveCall Communicator::plan(const Scan& verb, Tensor x, Site site) const {
  check_reducible(x, verb.op);
  const int me = rank().value;
  const Ranks folded =
      verb.reverse ? ranks(verb.inclusive ? me : me + 1, size()) : ranks(0, verb.inclusive ? me + 1 : me);
  Tensor y =
      folded.empty() ? Tensor::full(x.shape(), neutral(verb.op, x.dtype()), x.dtype(), x.device()) : Tensor::like(x);
  const Verb name = verb.reverse     ? verb.inclusive ? Verb::reverse_scan : Verb::reverse_exscan
                    : verb.inclusive ? Verb::scan
                                     : Verb::exscan;
  const Call call = describe(name, x, site, verb.op);
  return CollectiveCall(call, std::move(x), y, {0, folded, verb.op});
}

CollectiveCall Communicator::gathered(const Call& call, Tensor x, const Rows& rows,
                                      std::optional<GroupRank> root) const {
  const bool here = !root || *root == rank();
  const Shape whole = x.shape().with(0, total_rows(rows));
  CollectiveCall::Windows windows;
  int64_t begin = 0;
  for (int r = 0; here && r < size(); begin += of(rows, {r++}))
    windows.push_back({r, 0, of(rows, {r}) * row_size(x), begin * row_size(x)});
  Tensor y(here ? whole : whole.with(0, 0), x.dtype(), x.device());
  const size_t bytes = bytes_of_rows(*std::max_element(rows.begin(), rows.end()), x);
  return CollectiveCall(call, std::move(x), bytes, y, std::move(windows));
}

CollectiveCall Communicator::plan(const AllGather& verb, Tensor x, Site site) const {
  const Rows rows = checked_rows("all_gather", verb.rows, x, false);
  const Call call = described(Verb::all_gather, Verb::all_gather_v, x, site, verb.rows, ReduceOp::sum, -1, true);
  return gathered(call, std::move(x), rows, {});
}

CollectiveCall Communicator::plan(const Gather& verb, Tensor x, Site site) const {
  check_rank("gather", verb.root);
  const Rows rows = checked_rows("gather", verb.rows, x, false);
  const Call call = described(Verb::gather, Verb::gather_v, x, site, verb.rows, ReduceOp::sum, verb.root.value, true);
  return gathered(call, std::move(x), rows, verb.root);
}

CollectiveCall Communicator::plan(const Scatter& verb, Tensor x, Site site) const {
  check_rank("scatter", verb.root);
  const bool here = rank() == verb.root;
  const Rows rows = here || verb.rows.empty() ? checked_rows("scatter", verb.rows, x, true) : verb.rows;
  const Call call = described(Verb::scatter, Verb::scatter_v, x, site, verb.rows, ReduceOp::sum, verb.root.value, true);
  Tensor y(x.shape().with(0, of(rows, rank())), x.dtype(), x.device());
  const size_t bytes = bytes_of_rows(total_rows(rows), x);
  const CollectiveCall::Window mine{verb.root.value, rows_before(rows, rank().value) * row_size(x), y.size(), 0};
  return CollectiveCall(call, here ? std::move(x) : nothing_like(x), bytes, y, {mine});
}

CollectiveCall Communicator::plan(const Broadcast& verb, Tensor x, Site site) const {
  check_rank("broadcast", verb.root);
  const Call call = describe(Verb::broadcast, x, site, ReduceOp::sum, verb.root.value);
  Tensor y = Tensor::like(x);
  const size_t bytes = x.bytes();
  const CollectiveCall::Window all{verb.root.value, 0, y.size(), 0};
  return CollectiveCall(call, rank() == verb.root ? std::move(x) : nothing_like(x), bytes, y, {all});
}

CollectiveCall Communicator::plan(const AllToAll& verb, Tensor x, Site site) const {
  const auto ranks = static_cast<size_t>(size()), me = static_cast<size_t>(rank().value);
  require(verb.counts.empty() || verb.counts.size() == ranks, "all_to_all_v: counts of ", verb.counts.size(),
          " ranks for ", size());
  const Rows sent = checked_rows("all_to_all", verb.counts.empty() ? Rows() : verb.counts[me], x, true);
  const Counts counts = verb.counts.empty() ? Counts(ranks, sent) : verb.counts;
  CollectiveCall::Windows windows;
  Rows matrix;  // all counts, on which the ranks must agree
  int64_t received = 0;
  size_t bytes = 0;
  for (size_t r = 0; r < ranks; ++r) {
    require(counts[r].size() == ranks, "all_to_all_v: ", counts[r].size(), " counts of rows for ", size(), " ranks");
    bytes = std::max(bytes, bytes_of_rows(total_rows(counts[r]), x));
    windows.push_back({static_cast<int>(r), rows_before(counts[r], rank().value) * row_size(x),
                       counts[r][me] * row_size(x), received * row_size(x)});
    received = x.shape().with(0, sum_of_extents({received, counts[r][me]}))[0];
    if (!verb.counts.empty()) matrix.insert(matrix.end(), counts[r].begin(), counts[r].end());
  }
  Tensor y(x.shape().with(0, received), x.dtype(), x.device());
  const Call call = described(Verb::all_to_all, Verb::all_to_all_v, x, site, matrix, ReduceOp::sum, -1, true);
  return CollectiveCall(call, std::move(x), bytes, y, std::move(windows));
}

CollectiveCall Communicator::plan(const Permute& verb, Tensor x, Site site) const {
  require(static_cast<int>(verb.source.size()) == size(), "permute: ", verb.source.size(), " sources for ", size(),
          " ranks");
  for (const int64_t from : verb.source)
    require(from >= -1 && from < size(), "permute: source ", from, " in a group of ", size(), " ranks");
  const Call call = with_counts(describe(verb.back ? Verb::permute_back : Verb::permute, x, site), verb.source);
  Tensor y = Tensor::zeros(x.shape(), x.dtype(), x.device());
  if (verb.back) {
    Ranks readers;
    for (int r = 0; r < size(); ++r)
      if (of(verb.source, {r}) == rank().value) readers.push_back(r);
    return CollectiveCall(call, std::move(x), y, {0, readers, ReduceOp::sum});
  }
  CollectiveCall::Windows windows;
  if (const int64_t from = of(verb.source, rank()); from >= 0)
    windows.push_back({static_cast<int>(from), 0, x.size(), 0});
  const size_t bytes = x.bytes();
  return CollectiveCall(call, std::move(x), bytes, y, std::move(windows));
}

void Communicator::send(const Tensor& x, GroupRank to, Site site) {
  check_rank("send", to);
  const Tensor host = staged(x);
  transport_->send(describe(Verb::send, x, site, ReduceOp::sum, to.value), to, {host.data<std::byte>(), host.bytes()});
}

Tensor Communicator::receive(const Shape& shape, DType dtype, Device device, GroupRank from, Site site) {
  check_rank("receive", from);
  Tensor host(shape, dtype);
  const Call call = describe(Verb::receive, host, site, ReduceOp::sum, from.value);
  const Call sent = transport_->receive(call, from, {host.mutate<std::byte>(), host.bytes()});
  if (sent.has_origin) host.set_origin({Origin::any_tape, name(call.verb)});
  return host.to(device);
}

void Communicator::barrier(Site site) {
  transport_->expose(describe(Verb::barrier, site), {}, 0, [](const Transport::Part&) {});
}

Rows Communicator::rows_of(int64_t mine, Site site) {
  const std::vector<double> all = all_gather(Tensor::from({1}, {static_cast<double>(mine)}, DType::i64), site).values();
  return Rows(all.begin(), all.end());
}

std::unique_ptr<Communicator> Communicator::split(int color, int key, Site site) {
  std::unique_ptr<Transport> group = transport_->split(color, key, site);
  return group ? std::make_unique<Communicator>(std::move(group), reductions_) : nullptr;
}

void run_ranks(int n, const std::function<void(Communicator&)>& body) {
  run_ranks(n, [&](std::unique_ptr<Transport> transport) {
    Communicator comm(std::move(transport));
    body(comm);
  });
}

}  // namespace weft
