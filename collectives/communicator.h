#pragma once
// A group of ranks that run the same program, and what they do together with plain tensors. Every rank of the group
// makes the same calls in the same order; a call that differs is reported on every rank before any data move.
//
// Reductions add in rank order, 0 first, so every rank gets the same bits, on every transport and however the data are
// divided. Ranks may hold no rows at all. Tensors are divided among ranks along axis 0.
#include <functional>
#include <memory>
#include <optional>

#include "collectives/meeting.h"
#include "collectives/verbs.h"

namespace weft {

enum class Reductions : uint8_t { ordered, fast };

// A collective that this rank has started and others may be reading from. `wait`, once, gives its result as soon as
// everybody has started it. One that is dropped keeps nobody waiting.
class Pending {
 public:
  Pending(Meeting meeting, Transport& transport) : meeting_(std::move(meeting)), started_(meeting_->start(transport)) {}
  bool ready() const { return started_ && started_->ready(); }  // whether `wait` surely need not
  Tensor wait() {
    require(started_ != nullptr, "wait: this collective has been waited for already");
    Meeting meeting = *std::exchange(meeting_, std::nullopt);  // whose memory ends with it
    return meeting.finish(*std::exchange(started_, nullptr));
  }

 private:
  std::optional<Meeting> meeting_;
  std::unique_ptr<Transport::Started> started_;
};

class Communicator {  // must outlive the tapes it is used on, and what it has started
 public:
  // `fast` lets all_reduce use the transport's own algorithm, where it has one: the order of the terms, and with it the
  // last digits, may then differ between runs, numbers of ranks and transports, though not between ranks.
  explicit Communicator(std::unique_ptr<Transport> transport, Reductions reductions = Reductions::ordered);
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  GroupRank rank() const { return {transport_->rank()}; }
  int size() const { return transport_->size(); }
  GlobalRank global(GroupRank rank) const { return transport_->global(rank); }
  std::string description() const { return transport_->description(); }
  std::string busy_with(const std::string& what) { return transport_->busy_with(what); }  // see Busy

  using Rows = weft::Rows;
  using Sources = weft::Sources;

  // Any collective of verbs.h, at once or in two halves, between which the rank may do anything else. A started one
  // shows a copy of x, or x itself if it is given up to it.
  Tensor run(const AllReduce& verb, const Tensor& x, Site site = Site::here());
  template <class Verb> Tensor run(const Verb& verb, const Tensor& x, Site site = Site::here()) {
    return plan(verb, x, site).now(*transport_);
  }
  template <class Verb> Pending start(const Verb& verb, Tensor x, Site site = Site::here()) {
    return Pending(plan(verb, std::move(x), site), *transport_);
  }

  // Every rank gets the reduction of all x. The second form writes to y, which may be x, or memory that all have in
  // common.
  Tensor all_reduce(const Tensor& x, ReduceOp op = ReduceOp::sum, Site site = Site::here()) {
    return run(AllReduce{op}, x, site);
  }
  void all_reduce(const Tensor& x, Tensor& y, ReduceOp op = ReduceOp::sum, Site site = Site::here());
  // Rank r alone gets the reduction of its rows: the r-th of `size` equal parts, or of the parts given.
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
  Tensor scan(const Tensor& x, ReduceOp op = ReduceOp::sum, Site site = Site::here()) {
    return run(Scan{true, false, op}, x, site);
  }
  Tensor exscan(const Tensor& x, ReduceOp op = ReduceOp::sum, Site site = Site::here()) {
    return run(Scan{false, false, op}, x, site);
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

  // How many rows each rank has.
  Rows rows_of(int64_t mine, Site site = Site::here());

  // Groups of the ranks that give the same color, ordered by key and then by rank; none for a negative color. duplicate
  // keeps them all.
  std::unique_ptr<Communicator> split(int color, int key = 0, Site site = Site::here());
  std::unique_ptr<Communicator> duplicate(Site site = Site::here()) { return split(0, 0, site); }

  // Memory for tensors that peers can read in place; and memory, zeros at first, that all ranks have in common, such as
  // for the result of an all_reduce: empty where ranks share none. Everybody asks for common memory together.
  StorageHandle allocate_shown(size_t bytes) { return transport_->allocate_shown(bytes); }
  StorageHandle allocate_common(size_t bytes, Site site = Site::here()) {
    return transport_->allocate_common(bytes, site);
  }

 private:
  Meeting plan(const AllReduce& verb, Tensor x, Site site) const;
  Meeting plan(const ReduceScatter& verb, Tensor x, Site site) const;
  Meeting plan(const Reduce& verb, Tensor x, Site site) const;
  Meeting plan(const Scan& verb, Tensor x, Site site) const;
  Meeting plan(const AllGather& verb, Tensor x, Site site) const;
  Meeting plan(const Gather& verb, Tensor x, Site site) const;
  Meeting plan(const Scatter& verb, Tensor x, Site site) const;
  Meeting plan(const Broadcast& verb, Tensor x, Site site) const;
  Meeting plan(const AllToAll& verb, Tensor x, Site site) const;
  Meeting plan(const Permute& verb, Tensor x, Site site) const;
  Meeting gathered(const Call& call, Tensor x, const Rows& rows, std::optional<GroupRank> root) const;

  using Ranks = decltype(Meeting::Fold::ranks);
  Ranks ranks(int first, int last) const;
  // The counts given, or equal ones; checked against axis 0 of x, which must be `total` or else this rank's own count.
  Rows checked_rows(const char* verb, const Rows& rows, const Tensor& x, bool whole) const;
  void check_rank(const char* verb, GroupRank rank) const;

  std::unique_ptr<Transport> transport_;
  Reductions reductions_;
  Ranks everyone_;  // 0, 1, ..., size - 1
};

// Calls `body` as n ranks that are threads of this process; see run_ranks.h.
void run_ranks(int n, const std::function<void(Communicator&)>& body);

}  // namespace weft
