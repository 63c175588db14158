// The verbs: what each rank shows and takes. meeting.cpp moves it.
#include "collectives/communicator.h"

#include <algorithm>
#include <numeric>

#include "collectives/run_ranks.h"

namespace weft {

using Rows = Communicator::Rows;

static int64_t row_size(const Tensor& x) { return x.shape().product(1, x.shape().rank()); }

Communicator::Communicator(std::unique_ptr<Transport> transport)
    : transport_(std::move(transport)), everyone_(static_cast<size_t>(transport_->size())) {
  std::iota(everyone_.begin(), everyone_.end(), 0);
}

std::span<const int> Communicator::ranks(int first, int last) const {
  return std::span(everyone_).subspan(static_cast<size_t>(first), static_cast<size_t>(std::max(0, last - first)));
}

void Communicator::check_rank(const char* verb, GroupRank rank) const {
  require(rank.value >= 0 && rank.value < size(), verb, ": there is no rank ", rank, " in a group of ", size(),
          " ranks");
}

Rows Communicator::equal_rows(const char* verb, const Tensor& x) const {
  require(x.shape().rank() > 0 && x.shape()[0] % size() == 0, verb, ": axis 0 of ", x.shape(), " does not divide over ",
          size(), " ranks; use ", verb, "_v");
  return Rows(static_cast<size_t>(size()), x.shape()[0] / size());
}

void Communicator::check_rows(const char* verb, const Tensor& x, const Rows& rows, std::optional<int64_t> total) const {
  require(static_cast<int>(rows.size()) == size(), verb, ": ", rows.size(), " counts of rows for ", size(), " ranks");
  require(x.shape().rank() > 0, verb, ": a scalar has no axis 0");
  for (const int64_t count : rows) require(count >= 0, verb, ": a count of ", count, " rows");
  const int64_t expected = total ? *total : rows[static_cast<size_t>(rank().value)];
  require(x.shape()[0] == expected, verb, ": the counts say ", expected, " rows, the tensor is ", x.shape());
}

void Communicator::check_reducible(const Tensor& x, ReduceOp op) {
  require(op != ReduceOp::mean || is_floating(x.dtype()), "mean: a floating type is needed, not ", x.dtype());
}

Tensor Communicator::all_reduce(const Tensor& x, ReduceOp op, Site site) {
  Tensor y = Tensor::like(x);
  all_reduce(x, y, op, site);
  return y;
}

Tensor Communicator::reduce_scatter(const Tensor& x, ReduceOp op, Site site) {
  return reduce_scatter_v(x, equal_rows("reduce_scatter", x), op, site);
}

Tensor Communicator::reduce_scatter_v(const Tensor& x, const Rows& rows, ReduceOp op, Site site) {
  check_reducible(x, op);
  check_rows("reduce_scatter_v", x, rows, std::accumulate(rows.begin(), rows.end(), int64_t{0}));
  const auto mine = rows.begin() + rank().value;
  Tensor y(x.shape().with(0, *mine), x.dtype(), x.device());
  fold(with_counts(describe(Verb::reduce_scatter_v, x, site, op), rows), x,
       std::accumulate(rows.begin(), mine, int64_t{0}) * row_size(x), y.size(), everyone_, op, y);
  return y;
}

Tensor Communicator::reduce(const Tensor& x, GroupRank root, ReduceOp op, Site site) {
  check_reducible(x, op);
  check_rank("reduce", root);
  Tensor y = Tensor::zeros(x.shape(), x.dtype(), x.device());
  fold(describe(Verb::reduce, x, site, op, root.value), x, 0, rank() == root ? x.size() : 0, everyone_, op, y);
  return y;
}

Tensor Communicator::scan(const Tensor& x, ReduceOp op, Site site) {
  return folded(describe(Verb::scan, x, site, op), x, ranks(0, rank().value + 1), op);
}
Tensor Communicator::exscan(const Tensor& x, ReduceOp op, Site site) {
  return folded(describe(Verb::exscan, x, site, op), x, ranks(0, rank().value), op);
}
Tensor Communicator::reverse_scan(const Tensor& x, ReduceOp op, Site site) {
  return folded(describe(Verb::scan, x, site, op, 1), x, ranks(rank().value, size()), op);
}
Tensor Communicator::reverse_exscan(const Tensor& x, ReduceOp op, Site site) {
  return folded(describe(Verb::exscan, x, site, op, 1), x, ranks(std::min(rank().value + 1, size()), size()), op);
}

Tensor Communicator::gathered(Call call, const Tensor& x, const Rows& rows, std::optional<GroupRank> root) {
  const bool here = !root || *root == rank();
  std::vector<Window> windows;
  int64_t total = 0, longest = 0;
  for (int r = 0; r < size(); ++r) {
    const int64_t count = rows[static_cast<size_t>(r)];
    if (here) windows.push_back({r, 0, count * row_size(x), total * row_size(x)});
    total += count;
    longest = std::max(longest, count);
  }
  Tensor y(x.shape().with(0, here ? total : 0), x.dtype(), x.device());
  copy(call, x, static_cast<size_t>(longest * row_size(x)) * size_of(x.dtype()), windows, y);
  return y;
}

Tensor Communicator::all_gather(const Tensor& x, Site site) {
  require(x.shape().rank() > 0, "all_gather: a scalar has no axis 0; reshape it to (1)");
  return gathered(describe(Verb::all_gather, x, site), x, Rows(static_cast<size_t>(size()), x.shape()[0]), {});
}
Tensor Communicator::all_gather_v(const Tensor& x, const Rows& rows, Site site) {
  check_rows("all_gather_v", x, rows, {});
  return gathered(with_counts(describe(Verb::all_gather_v, x, site, ReduceOp::sum, -1, true), rows), x, rows, {});
}
Tensor Communicator::gather(const Tensor& x, GroupRank root, Site site) {
  check_rank("gather", root);
  require(x.shape().rank() > 0, "gather: a scalar has no axis 0; reshape it to (1)");
  return gathered(describe(Verb::gather, x, site, ReduceOp::sum, root.value), x,
                  Rows(static_cast<size_t>(size()), x.shape()[0]), root);
}
Tensor Communicator::gather_v(const Tensor& x, const Rows& rows, GroupRank root, Site site) {
  check_rank("gather_v", root);
  check_rows("gather_v", x, rows, {});
  return gathered(with_counts(describe(Verb::gather_v, x, site, ReduceOp::sum, root.value, true), rows), x, rows, root);
}

Tensor Communicator::scattered(Call call, const Tensor& x, const Rows& rows, GroupRank root) {
  const auto mine = rows.begin() + rank().value;
  const int64_t before = std::accumulate(rows.begin(), mine, int64_t{0}),
                total = std::accumulate(rows.begin(), rows.end(), int64_t{0});
  Tensor y(x.shape().with(0, *mine), x.dtype(), x.device());
  const Window window[] = {{root.value, before * row_size(x), y.size(), 0}};
  const Tensor shown = rank() == root ? x : Tensor({0}, x.dtype(), x.device());
  copy(call, shown, static_cast<size_t>(total * row_size(x)) * size_of(x.dtype()), window, y);
  return y;
}

Tensor Communicator::scatter(const Tensor& x, GroupRank root, Site site) {
  check_rank("scatter", root);
  return scattered(describe(Verb::scatter, x, site, ReduceOp::sum, root.value), x, equal_rows("scatter", x), root);
}
Tensor Communicator::scatter_v(const Tensor& x, const Rows& rows, GroupRank root, Site site) {
  check_rank("scatter_v", root);
  const int64_t total = std::accumulate(rows.begin(), rows.end(), int64_t{0});
  check_rows("scatter_v", x, rows, rank() == root ? total : x.shape()[0]);
  return scattered(with_counts(describe(Verb::scatter_v, x, site, ReduceOp::sum, root.value, true), rows), x, rows,
                   root);
}

Tensor Communicator::broadcast(const Tensor& x, GroupRank root, Site site) {
  check_rank("broadcast", root);
  Tensor y = Tensor::like(x);
  const Window window[] = {{root.value, 0, x.size(), 0}};
  const Tensor shown = rank() == root ? x : Tensor({0}, x.dtype(), x.device());
  copy(describe(Verb::broadcast, x, site, ReduceOp::sum, root.value), shown, x.bytes(), window, y);
  return y;
}

Tensor Communicator::all_to_all(const Tensor& x, Site site) {
  const int64_t rows = equal_rows("all_to_all", x)[0], block = rows * row_size(x);
  std::vector<Window> windows;
  for (int r = 0; r < size(); ++r) windows.push_back({r, rank().value * block, block, r * block});
  Tensor y = Tensor::like(x);
  copy(describe(Verb::all_to_all, x, site), x, x.bytes(), windows, y);
  return y;
}

Tensor Communicator::all_to_all_v(const Tensor& x, const std::vector<Rows>& counts, Site site) {
  const auto me = static_cast<size_t>(rank().value);
  const auto total = [](const Rows& rows) { return std::accumulate(rows.begin(), rows.end(), int64_t{0}); };
  require(static_cast<int>(counts.size()) == size(), "all_to_all_v: counts of ", counts.size(), " ranks for ", size());
  for (const Rows& rows : counts) check_rows("all_to_all_v", x, rows, x.shape()[0]);
  require(total(counts[me]) == x.shape()[0], "all_to_all_v: the counts say ", total(counts[me]),
          " rows, the tensor is ", x.shape());
  std::vector<Window> windows;
  int64_t received = 0, longest = 0;
  for (size_t r = 0; r < counts.size(); ++r) {
    const int64_t before = std::accumulate(counts[r].begin(), counts[r].begin() + rank().value, int64_t{0});
    windows.push_back({static_cast<int>(r), before * row_size(x), counts[r][me] * row_size(x), received * row_size(x)});
    received += counts[r][me];
    longest = std::max(longest, total(counts[r]));
  }
  Tensor y(x.shape().with(0, received), x.dtype(), x.device());
  Rows matrix;
  for (const Rows& rows : counts) matrix.insert(matrix.end(), rows.begin(), rows.end());
  copy(with_counts(describe(Verb::all_to_all_v, x, site, ReduceOp::sum, -1, true), matrix), x,
       static_cast<size_t>(longest * row_size(x)) * size_of(x.dtype()), windows, y);
  return y;
}

Tensor Communicator::permute(const Tensor& x, const Sources& source, Site site) {
  require(static_cast<int>(source.size()) == size(), "permute: ", source.size(), " sources for ", size(), " ranks");
  const int64_t from = source[static_cast<size_t>(rank().value)];
  require(from >= -1 && from < size(), "permute: source ", from, " in a group of ", size(), " ranks");
  Tensor y = Tensor::zeros(x.shape(), x.dtype(), x.device());
  const Window window[] = {{static_cast<int>(std::max<int64_t>(from, 0)), 0, from < 0 ? 0 : x.size(), 0}};
  copy(with_counts(describe(Verb::permute, x, site), source), x, x.bytes(), window, y);
  return y;
}

Tensor Communicator::permute_back(const Tensor& x, const Sources& source, Site site) {
  std::vector<int> readers;
  for (int r = 0; r < size(); ++r)
    if (source[static_cast<size_t>(r)] == rank().value) readers.push_back(r);
  return folded(with_counts(describe(Verb::permute, x, site), source), x, readers, ReduceOp::sum);
}

void Communicator::send(const Tensor& x, GroupRank to, Site site) {
  check_rank("send", to);
  const Tensor host = x.to(Device::cpu);
  transport_->send(describe(Verb::send, x, site, ReduceOp::sum, to.value), to, {host.data<std::byte>(), host.bytes()});
}

Tensor Communicator::receive(const Shape& shape, DType dtype, Device device, GroupRank from, Site site) {
  check_rank("receive", from);
  Tensor host(shape, dtype);
  const Call call = describe(Verb::receive, host, site, ReduceOp::sum, from.value);
  transport_->receive(call, from, {host.mutate<std::byte>(), host.bytes()});
  return host.to(device);
}

void Communicator::barrier(Site site) {
  transport_->meet(describe(Verb::barrier, Tensor({0}), site), {}, 0, [](const Transport::Part&) {});
}

Rows Communicator::rows_of(int64_t mine, Site site) {
  const std::vector<double> all = all_gather(Tensor::from({1}, {static_cast<double>(mine)}, DType::i64), site).values();
  return Rows(all.begin(), all.end());
}

void run_ranks(int n, const std::function<void(Communicator&)>& body) {
  run_ranks(n, [&](std::unique_ptr<Transport> transport) {
    Communicator comm(std::move(transport));
    body(comm);
  });
}

std::unique_ptr<Communicator> Communicator::split(int color, int key, Site site) {
  std::unique_ptr<Transport> group = transport_->split(color, key, site);
  return group ? std::make_unique<Communicator>(std::move(group)) : nullptr;
}

}  // namespace weft
