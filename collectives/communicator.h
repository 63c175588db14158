// SPDX-License-Identifier: Apache-2.0
#pragma once
// A group of ranks that run the same program, and its collectives on plain tensors. Every rank of the group makes the
// same calls in the same order. If a call differs, every rank gets an error before any data move.
//
// Reductions add in a fixed order (fold_order.h), so every rank gets the same bits, on every transport and for every
// division of the data. A rank may hold no rows at all. Tensors are divided among ranks along axis 0.
#include <functional>
#include <memory>
#include <optional>

#include "weft/collectives/collective_call.h"
#include "weft/collectives/job_groups.h"
#include "weft/collectives/unfinished.h"
#include "weft/collectives/verbs.h"

namespace weft {

enum class Reductions : uint8_t { ordered, fast };

class Communicator {  // must outlive the tapes it is used on, and the collectives it has started
 public:
  // With `fast`, all_reduce and reduce_scatter use the transport's own algorithm if there is one. Then the order of the
  // terms, and with it the last digits, may differ between runs, numbers of ranks and transports, not between ranks.
  explicit Communicator(std::unique_ptr<Transport> transport, Reductions reductions = Reductions::ordered);
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  GroupRank rank() const { return {transport_->rank()}; }
  int size() const { return transport_->size(); }
  GlobalRank global(GroupRank rank) const { return transport_->global(rank); }
  // The groups of all ranks that were made together with this one, and all groups of the job that exist now.
  const std::shared_ptr<const Partition>& partition() const { return partition_; }
  const JobGroups& job_groups() const { return *job_; }
  std::string description() const { return transport_->description(); }
  std::string choices() const { return transport_->choices(); }
  std::string busy_with(const std::string& what) { return transport_->busy_with(what); }  // see Busy

  using Rows = weft::Rows;
  using Sources = weft::Sources;

  // Any collective of verbs.h, as a whole or in two halves, between which the rank may do anything else. `start`
  // exposes a copy of x, or x itself if the caller moves its only reference to it.
  template <LinearCollective C> Tensor run(const C& collective, const Tensor& x, Site site = Site::here()) {
    return with_plan(collective, x, site,
                     [&](CollectiveCall call, auto... terms) { return call.run(*transport_, terms...); });
  }
  // The same for values that nobody writes to, as on a tape: the result of a rank that is alone may share x's memory.
  template <LinearCollective C> Tensor run_on_tape(const C& collective, const Tensor& x, Site site) {
    return is_input(collective, x) ? unchanged(x, describe_call(collective, x, size(), site))
                                   : run(collective, x, site);
  }
  template <LinearCollective C> Pending start(const C& collective, Tensor x, Site site = Site::here()) {
    return with_plan(collective, std::move(x), site, [&](CollectiveCall call, auto... terms) {
      return Pending(std::move(call), *transport_, terms...);
    });
  }

  void go_on() { transport_->unfinished()->go_on(); }  // lets started collectives go on, without waiting

  // Every rank gets the reduction of all x. The second form writes to y: x itself if need be, or memory that all ranks
  // share.
  Tensor all_reduce(const Tensor& x, ReduceOp op = ReduceOp::sum, Site site = Site::here()) {
    Tensor y(x.shape(), x.dtype(), x.device());
    all_reduce(x, y, op, site);
    return y;
  }
  void all_reduce(const Tensor& x, Tensor& y, ReduceOp op = ReduceOp::sum, Site site = Site::here());
  // Rank r gets the reduction of its rows only: the r-th of `size` equal parts, or of the parts given.
  Tensor reduce_scatter(const Tensor& x, ReduceOp op = ReduceOp::sum, Site site = Site::here()) {
    return run(ReduceScatter{{}, op}, x, site);
  }
  Tensor reduce_scatter_v(const Tensor& x, const Rows& rows, ReduceOp op = ReduceOp::sum, Site site = Site::here()) {
    return run(ReduceScatter{rows, op}, x, site);
  }
  // The root gets the reduction, the others zeros.
  Tensor reduce(const Tensor& x, GroupRank root, ReduceOp op = ReduceOp::sum, Site site = Site::here()) {
    return run(Reduce{root, op}, x, site);
  }
  // Rank r gets the reduction over ranks 0..r (scan) or 0..r-1 (exscan; rank 0 gets the operation's neutral element).
  Tensor scan(const Tensor& x, ReduceOp op = ReduceOp::sum, Site site = Site::here()) { return run(Scan{op}, x, site); }
  Tensor exscan(const Tensor& x, ReduceOp op = ReduceOp::sum, Site site = Site::here()) {
    return run(Exscan{op}, x, site);
  }

  // All blocks in rank order, on every rank or on the root (the others get an empty block).
  Tensor all_gather(const Tensor& x, Site site = Site::here()) { return run(AllGather{}, x, site); }
  Tensor all_gather_v(const Tensor& x, const Rows& rows, Site site = Site::here()) {
    return run(AllGather{rows}, x, site);
  }
  Tensor gather(const Tensor& x, GroupRank root, Site site = Site::here()) { return run(Gather{root}, x, site); }
  Tensor gather_v(const Tensor& x, const Rows& rows, GroupRank root, Site site = Site::here()) {
    return run(Gather{root, rows}, x, site);
  }
  // Rank r gets its block of the root's x. The others' x gives the extents of the axes after the first.
  Tensor scatter(const Tensor& x, GroupRank root, Site site = Site::here()) { return run(Scatter{root}, x, site); }
  Tensor scatter_v(const Tensor& x, const Rows& rows, GroupRank root, Site site = Site::here()) {
    return run(Scatter{root, rows}, x, site);
  }
  Tensor broadcast(const Tensor& x, GroupRank root, Site site = Site::here()) { return run(Broadcast{root}, x, site); }
  // Block s of rank r's x becomes block r of rank s's result; counts[r][s] is how many rows that is.
  Tensor all_to_all(const Tensor& x, Site site = Site::here()) { return run(AllToAll{}, x, site); }
  Tensor all_to_all_v(const Tensor& x, const Counts& counts, Site site = Site::here()) {
    return run(AllToAll{counts}, x, site);
  }
  // Rank r gets the x of rank source[r], or zeros where that is -1.
  Tensor permute(const Tensor& x, const Sources& source, Site site = Site::here()) {
    return run(Permute{source}, x, site);
  }

  void send(const Tensor& x, GroupRank to, Site site = Site::here());
  Tensor receive(const Shape& shape, DType dtype, Device device, GroupRank from, Site site = Site::here());
  void barrier(Site site = Site::here());

  // The numbers of rows of all ranks.
  Rows rows_of(int64_t mine, Site site = Site::here());

  // `split` makes groups of the ranks that give the same color, ordered by key and then by rank; null for a negative
  // color. `duplicate` makes another group of all ranks.
  std::unique_ptr<Communicator> split(int color, int key = 0, Site site = Site::here());
  std::unique_ptr<Communicator> duplicate(Site site = Site::here());

  // `allocate_shown` gives memory for tensors that peers can read in place. `allocate_common` gives memory that all
  // ranks share, zeros at first, such as for the result of an all_reduce; empty if the ranks cannot share memory. All
  // ranks call it together.
  StorageHandle allocate_shown(size_t bytes) { return transport_->allocate_shown(bytes); }
  StorageHandle allocate_common(size_t bytes, Site site = Site::here()) {
    return transport_->allocate_common(bytes, site);
  }

 private:
  // Calls `body` with the collective on this rank, and if it is a reduction, with its terms on all ranks.
  template <LinearCollective C, class Body>
  auto with_plan(const C& requested, Tensor x, Site site, const Body& body) const;
  // Whether the result on this rank is x, since there is no other.
  template <LinearCollective C> bool is_input(const C& collective, const Tensor& x) const;
  Tensor unchanged(Tensor x, const Call& call);  // after the call itself, which is compared and counted as any other
  template <LinearCollective C>
  CollectiveCall::List<Transport::Range> slices(const C& collective, const Tensor& x) const;
  // The collective on this rank, from the portions of its verb: as copies, or as a reduction.
  template <LinearCollective C> CollectiveCall copies(const C& collective, const Call& call, Tensor x) const;
  template <LinearCollective C> CollectiveCall reduction(const C& collective, const Call& call, Tensor x) const;

  // Error unless rank `reader` can read this portion of x here.
  template <LinearCollective C>
  void check_portion(const C& collective, const Portion& portion, int reader, const Tensor& x) const;
  // The verb with counts of rows, checked against x: the given ones, or equal ones.
  template <LinearCollective C> C with_counts_of(C collective, const Tensor& x) const;
  AllToAll with_counts_of(AllToAll verb, const Tensor& x) const;
  Permute with_counts_of(Permute verb, const Tensor& x) const;
  // The given counts, or equal ones. Axis 0 of x must be their sum if `whole`, otherwise this rank's own count.
  Rows checked_rows(const char* verb, const Rows& rows, const Tensor& x, bool whole) const;
  void check_rank(const char* verb, GroupRank rank) const;
  void check_reducible(const Tensor& x, ReduceOp op) const;

  Communicator(std::unique_ptr<Transport> transport, const Communicator& parent,
               std::shared_ptr<const Partition> partition);

  std::unique_ptr<Transport> transport_;
  std::vector<int> everyone_;  // all ranks, in order
  Reductions reductions_;
  std::shared_ptr<JobGroups> job_;
  std::shared_ptr<const Partition> partition_;
};

// A tensor without elements that has the type, device and origin of x.
Tensor nothing_like(const Tensor& x);
// The value of a reduction of nothing.
double reduction_of_nothing(ReduceOp op, DType dtype);

template <LinearCollective C> C Communicator::with_counts_of(C collective, const Tensor& x) const {
  if constexpr (Rooted<C>) check_rank(C::op_name, collective.root);
  if constexpr (Reducing<C>) check_reducible(x, collective.op);
  if constexpr (HasRows<C>) {
    bool here = true;  // whether the counts apply to x: not if it is what another rank's is scattered to
    if constexpr (Rooted<C> && C::divides) here = rank() == collective.root || collective.rows.empty();
    if (here) collective.rows = checked_rows(C::op_name, collective.rows, x, C::divides);
  }
  return collective;
}

template <LinearCollective C, class Body>
auto Communicator::with_plan(const C& requested, Tensor x, Site site, const Body& body) const {
  const C collective = with_counts_of(requested, x);
  const Call call = describe_call(requested, x, size(), site);
  if constexpr (Slicing<C> || !C::by_rows) {
    if (adds(collective, size())) {
      const auto reads = [&](int reader, int source) {
        return Slicing<C> || collective.portion(reader, source).count > 0;
      };
      const auto ranges = slices(collective, x);
      const bool to_all = std::is_same_v<C, AllReduce>;
      const bool in_any_order = reductions_ == Reductions::fast && (to_all || of_one_size(ranges));
      const Transport::Terms terms{reads, ranges, to_all, in_any_order};
      return body(reduction(collective, call, std::move(x)), &terms);
    }
  }
  return body(copies(collective, call, std::move(x)));
}

template <LinearCollective C> bool Communicator::is_input(const C& collective, const Tensor& x) const {
  const bool shown = x.device() == Device::cpu || transport_->shows_device_memory();
  if (size() > 1 || !shown || collective.verb() == Verb::custom || (C::by_rows && x.shape().rank() == 0)) return false;
  return with_counts_of(collective, x).portion(0, 0) == (C::by_rows ? Portion{0, x.shape()[0], 0} : whole_tensor);
}

template <LinearCollective C>
CollectiveCall::List<Transport::Range> Communicator::slices(const C& collective, const Tensor& x) const {
  CollectiveCall::List<Transport::Range> ranges;
  if constexpr (Slicing<C>) {
    const auto row = static_cast<size_t>(x.shape().product(1, x.shape().rank())) * size_of(x.dtype());
    for (int reader = 0; reader < size(); ++reader) {
      const Portion portion = collective.portion(reader, 0);
      ranges.push_back(
          {static_cast<size_t>(portion.from) * row, static_cast<size_t>(portion.from + portion.count) * row});
    }
  }
  return ranges;
}

template <LinearCollective C>
void Communicator::check_portion(const C& collective, const Portion& portion, int reader, const Tensor& x) const {
  const auto [from, count, to] = portion;
  require(!C::by_rows || x.shape().rank() > 0, C::op_name, ": a scalar has no axis 0; reshape it to (1)");
  const int64_t units = C::by_rows ? std::min(collective.exposed(rank().value), x.shape()[0]) : 1;
  const bool fits = from >= 0 && to >= 0 && count <= units - from && (C::by_rows || to == 0);
  require(count == 0 || fits, C::op_name, ": rank ", reader, " of the group reads ", count, " from ", from, " on of ",
          units, C::by_rows ? " rows" : " whole tensor");
}

template <LinearCollective C>
CollectiveCall Communicator::reduction(const C& collective, const Call& call, Tensor x) const {
  const int me = rank().value;
  CollectiveCall::List<int> sources;
  for (int r = 0; r < size(); ++r) {
    if (collective.verb() == Verb::custom) check_portion(collective, collective.portion(r, me), r, x);
    if (Slicing<C> || collective.portion(me, r).count > 0) sources.push_back(r);
  }
  const Shape shape = C::by_rows ? x.shape().with(0, collective.portion(me, 0).count) : x.shape();
  double nothing = 0;  // what the result is where this rank reads nothing
  if constexpr (Reducing<C> && !C::sums)
    if (sources.empty()) nothing = reduction_of_nothing(collective.op, x.dtype());
  Tensor y =
      sources.empty() ? Tensor::full(shape, nothing, x.dtype(), x.device()) : Tensor(shape, x.dtype(), x.device());
  if (collective.exposed(me) == 0) x = nothing_like(x);
  return CollectiveCall(call, std::move(x), std::move(y), std::move(sources));
}

template <LinearCollective C>
CollectiveCall Communicator::copies(const C& collective, const Call& call, Tensor x) const {
  const int me = rank().value;
  const auto row = static_cast<size_t>(C::by_rows ? x.shape().product(1, x.shape().rank()) : x.size());
  const size_t unit = row * size_of(x.dtype());
  CollectiveCall::Moves moves;
  size_t longest = 0;
  int64_t units = 0;  // of the result
  for (int r = 0; r < size(); ++r) {
    const Portion in = collective.portion(me, r), out = collective.portion(r, me);
    const auto bytes = [&](int64_t n) { return static_cast<size_t>(n) * unit; };
    if (collective.verb() == Verb::custom) check_portion(collective, out, r, x);
    moves.of_peers.push_back({bytes(in.from), bytes(in.from + in.count)});
    moves.by_peers.push_back({bytes(out.from), bytes(out.from + out.count)});
    moves.to.push_back(bytes(in.to));
    if (in.count > 0) units = std::max(units, sum_of_extents({in.to, in.count}));
    const Shape exposed = C::by_rows ? x.shape().with(0, collective.exposed(r)) : x.shape();
    longest = std::max(longest, static_cast<size_t>(exposed.size()) * size_of(x.dtype()));
  }
  const Shape shape = C::by_rows ? x.shape().with(0, units) : x.shape();
  using Landing = CollectiveCall::Moves::Landing;
  const auto landing = moves.landing(static_cast<size_t>(shape.size()) * size_of(x.dtype()));
  const bool filled = landing == Landing::side_by_side || landing == Landing::on_each_other;
  require(landing != Landing::anyhow || reduction_of(collective) != ReduceOp::mean, C::op_name,
          ": a mean is taken of portions that are all of the result; take the sum");
  Tensor y = filled ? Tensor(shape, x.dtype(), x.device()) : Tensor::zeros(shape, x.dtype(), x.device());
  if (collective.exposed(me) == 0) x = nothing_like(x);
  return CollectiveCall(call, std::move(x), longest, std::move(y), std::move(moves));
}

// Calls `body` on so many ranks, threads of this process; see run_ranks.h.
void run_ranks(int ranks, const std::function<void(Communicator&)>& body);

}  // namespace weft
