// SPDX-License-Identifier: Apache-2.0
// Which elements each rank exposes and reads in every collective. collective_call.cpp moves them.
#include "weft/collectives/communicator.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <map>
#include <numeric>

#include "weft/collectives/fold.h"
#include "weft/collectives/run_ranks.h"
#include "weft/engine/kernels/backend.h"
#include "weft/engine/tensor/origin.h"

namespace weft {

static Partition::Ranks ranks_of(const Transport& transport) {
  Partition::Ranks ranks;
  for (int r = 0; r < transport.size(); ++r) ranks.push_back(transport.global({r}).value);
  return ranks;
}

static std::vector<int> numbers_below(int end) {
  std::vector<int> numbers(static_cast<size_t>(end));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

Communicator::Communicator(std::unique_ptr<Transport> transport, Reductions reductions)
    : transport_(std::move(transport)),
      everyone_(numbers_below(transport_->size())),
      reductions_(reductions),
      job_(std::make_shared<JobGroups>()),
      partition_(job_->add(Partition({ranks_of(*transport_)}, 0))) {}

Communicator::Communicator(std::unique_ptr<Transport> transport, const Communicator& parent,
                           std::shared_ptr<const Partition> partition)
    : transport_(std::move(transport)),
      everyone_(numbers_below(transport_->size())),
      reductions_(parent.reductions_),
      job_(parent.job_),
      partition_(std::move(partition)) {}

Tensor nothing_like(const Tensor& x) {
  Tensor nothing({0}, x.dtype(), x.device());
  Origin::set(nothing, Origin::of(x));
  return nothing;
}

double reduction_of_nothing(ReduceOp op, DType dtype) {
  if (op == ReduceOp::product) return 1;
  if (op != ReduceOp::maximum && op != ReduceOp::minimum) return 0;
  require(is_floating(dtype), "exscan: ", op, " of ", dtype, " has no neutral element for the rank without others");
  const double infinity = std::numeric_limits<double>::infinity();
  return op == ReduceOp::maximum ? -infinity : infinity;
}

void Communicator::check_reducible(const Tensor& x, ReduceOp op) const {
  require(op != ReduceOp::mean || is_floating(x.dtype()), "mean: a floating type is needed, not ", x.dtype());
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
  const int64_t expected = whole ? total_rows(rows) : rows_of_rank(rows, rank().value);
  require(x.shape()[0] == expected, verb, "_v: the counts say ", expected, " rows, the tensor is ", x.shape());
  return rows;
}

AllToAll Communicator::with_counts_of(AllToAll verb, const Tensor& x) const {
  const auto ranks = static_cast<size_t>(size());
  require(verb.counts.empty() || verb.counts.size() == ranks, "all_to_all_v: counts of ", verb.counts.size(),
          " ranks for ", size());
  for (const Rows& sent : verb.counts)
    require(sent.size() == ranks, "all_to_all_v: ", sent.size(), " counts of rows for ", size(), " ranks");
  const Rows mine = verb.counts.empty() ? Rows() : verb.counts[static_cast<size_t>(rank().value)];
  const Rows sent = checked_rows("all_to_all", mine, x, true);
  if (verb.counts.empty()) verb.counts = Counts(ranks, sent);
  return verb;
}

Permute Communicator::with_counts_of(Permute verb, const Tensor&) const {
  require(static_cast<int>(verb.source.size()) == size(), "permute: ", verb.source.size(), " sources for ", size(),
          " ranks");
  for (const int64_t from : verb.source)
    require(from >= -1 && from < size(), "permute: source ", from, " in a group of ", size(), " ranks");
  return verb;
}

Tensor Communicator::unchanged(Tensor x, const Call& call) {
  transport_->expose(call, {x.data<std::byte>(), x.bytes()}, x.bytes(), [](const Transport::Part&) {});
  Origin::set(x, origin_of_result(x, call));
  return x;
}

void Communicator::all_reduce(const Tensor& x, Tensor& y, ReduceOp op, Site site) {
  check_reducible(x, op);
  require(y.shape() == x.shape() && y.dtype() == x.dtype() && y.device() == x.device(), "all_reduce: the result ",
          y.dtype(), " ", y.shape(), " does not fit ", x.dtype(), " ", x.shape());
  const Call call = describe(Verb::all_reduce, x, site, op);
  const Transport::Terms terms{[](int, int) { return true; }, {}, true, reductions_ == Reductions::fast};
  const Origin origin = origin_of_result(x, call);  // read before y changes, which may be x
  if (x.device() == Device::cpu || (transport_->shows_device_memory() && transport_->keeps_stream_order())) {
    // Nothing is staged, and nobody waits for a card. So a CollectiveCall is not needed, which would cost a fifth more.
    const Fold fold{everyone_, op, x.dtype(), x.device(), true};
    transport_->reduce(call, {x.data<std::byte>(), x.bytes()}, {y.mutate<std::byte>(), y.bytes()}, {terms, fold});
  } else {
    CollectiveCall(call, x, y, {everyone_.begin(), everyone_.end()}).run(*transport_, &terms);
  }
  Origin::set(y, origin);
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
  if (sent.has_origin) Origin::set(host, {Origin::any_tape, name(call.verb)});
  return host.to(device);
}

void Communicator::barrier(Site site) {
  transport_->expose(describe(Verb::barrier, site), {}, 0, [](const Transport::Part&) {});
}

Rows Communicator::rows_of(int64_t mine, Site site) {
  const std::vector<double> all = all_gather(Tensor::from({1}, {static_cast<double>(mine)}, DType::i64), site).values();
  return Rows(all.begin(), all.end());
}

// Every rank learns what all have chosen, and so the groups of all.
std::unique_ptr<Communicator> Communicator::split(int color, int key, Site site) {
  const std::array<int, 2> mine{color, key};
  std::map<int, std::multimap<int, int>> groups;  // by color, ranks by key
  const auto read = [&](const Transport::Part& part) {
    for (int r = 0; r < size(); ++r) {
      std::array<int, 2> theirs;
      std::memcpy(&theirs, part.peers[static_cast<size_t>(r)], sizeof theirs);
      if (theirs[0] >= 0) groups[theirs[0]].emplace(theirs[1], global({r}).value);
    }
  };
  transport_->expose(describe(Verb::split, site), std::as_bytes(std::span(&mine, 1)), sizeof mine, read);
  std::unique_ptr<Transport> group = transport_->split(color, key, site);
  if (!group) return nullptr;
  std::vector<Partition::Ranks> ranks;
  for (const auto& [_, members] : groups) {
    ranks.emplace_back();
    for (const auto& [key_of_rank, rank] : members) ranks.back().push_back(rank);
  }
  const auto me = static_cast<size_t>(std::distance(groups.begin(), groups.find(color)));
  const bool all_again = size() > 1 && ranks.size() == 1 && ranks[0] == ranks_of(*transport_);
  return std::unique_ptr<Communicator>(
      new Communicator(std::move(group), *this, all_again ? partition_ : job_->add(Partition(std::move(ranks), me))));
}

std::unique_ptr<Communicator> Communicator::duplicate(Site site) {
  return std::unique_ptr<Communicator>(new Communicator(transport_->split(0, 0, site), *this, partition_));
}

void run_ranks(int ranks, const std::function<void(Communicator&)>& body) {
  run_ranks(ranks, [&](std::unique_ptr<Transport> transport) {
    Communicator comm(std::move(transport));
    body(comm);
  });
}

}  // namespace weft
