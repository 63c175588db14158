#pragma once
// A group of ranks that run the same program, and what they do together with plain tensors. Every rank of the group
// makes the same calls in the same order; a call that differs is reported on every rank before any data move.
//
// Reductions add in rank order, 0 first, so every rank gets the same bits, on every transport and however the data are
// divided. Ranks may hold no rows at all. Tensors are divided among ranks along axis 0.
#include <memory>
#include <optional>
#include <vector>

#include "collectives/transport.h"

namespace weft {

class Communicator {  // must outlive the tapes it is used on
 public:
  explicit Communicator(std::unique_ptr<Transport> transport);
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  GroupRank rank() const { return {transport_->rank()}; }
  int size() const { return transport_->size(); }
  GlobalRank global(GroupRank rank) const { return transport_->global(rank); }
  std::string description() const { return transport_->description(); }

  using Rows = std::vector<int64_t>;     // one extent of axis 0 per rank
  using Sources = std::vector<int64_t>;  // for each rank the one it reads, or -1

  // Every rank gets the reduction of all x. The second form writes to y, which may be x.
  Tensor all_reduce(const Tensor& x, ReduceOp op = ReduceOp::sum, Site site = Site::here());
  void all_reduce(const Tensor& x, Tensor& y, ReduceOp op = ReduceOp::sum, Site site = Site::here());
  // Rank r alone gets the reduction of its rows: the r-th of `size` equal parts, or of the parts given.
  Tensor reduce_scatter(const Tensor& x, ReduceOp op = ReduceOp::sum, Site site = Site::here());
  Tensor reduce_scatter_v(const Tensor& x, const Rows& rows, ReduceOp op = ReduceOp::sum, Site site = Site::here());
  // The root gets the reduction, the others zeros.
  Tensor reduce(const Tensor& x, GroupRank root, ReduceOp op = ReduceOp::sum, Site site = Site::here());
  // Rank r gets the reduction over ranks 0..r (scan) or 0..r-1 (exscan; rank 0 gets the operation's neutral element).
  Tensor scan(const Tensor& x, ReduceOp op = ReduceOp::sum, Site site = Site::here());
  Tensor exscan(const Tensor& x, ReduceOp op = ReduceOp::sum, Site site = Site::here());
  // The same from the other end: over ranks r..size-1, or r+1..size-1. These are the adjoints of the two above.
  Tensor reverse_scan(const Tensor& x, ReduceOp op = ReduceOp::sum, Site site = Site::here());
  Tensor reverse_exscan(const Tensor& x, ReduceOp op = ReduceOp::sum, Site site = Site::here());

  // All blocks in rank order, on every rank or on the root (the others get an empty block).
  Tensor all_gather(const Tensor& x, Site site = Site::here());
  Tensor all_gather_v(const Tensor& x, const Rows& rows, Site site = Site::here());
  Tensor gather(const Tensor& x, GroupRank root, Site site = Site::here());
  Tensor gather_v(const Tensor& x, const Rows& rows, GroupRank root, Site site = Site::here());
  // Rank r gets its block of the root's x. The others' x gives the extents of the axes after the first.
  Tensor scatter(const Tensor& x, GroupRank root, Site site = Site::here());
  Tensor scatter_v(const Tensor& x, const Rows& rows, GroupRank root, Site site = Site::here());
  Tensor broadcast(const Tensor& x, GroupRank root, Site site = Site::here());
  // Block s of rank r's x becomes block r of rank s's result; counts[r][s] is how many rows that is.
  Tensor all_to_all(const Tensor& x, Site site = Site::here());
  Tensor all_to_all_v(const Tensor& x, const std::vector<Rows>& counts, Site site = Site::here());
  // Rank r gets the x of rank source[r], or zeros where that is -1; and the adjoint, the sum of what each rank's x
  // became.
  Tensor permute(const Tensor& x, const Sources& source, Site site = Site::here());
  Tensor permute_back(const Tensor& x, const Sources& source, Site site = Site::here());

  void send(const Tensor& x, GroupRank to, Site site = Site::here());
  Tensor receive(const Shape& shape, DType dtype, Device device, GroupRank from, Site site = Site::here());
  void barrier(Site site = Site::here());

  // How many rows each rank has, and everyone's counts of rows for everyone.
  Rows rows_of(int64_t mine, Site site = Site::here());

  // Groups of the ranks that give the same color, ordered by key and then by rank; none for a negative color. duplicate
  // keeps them all.
  std::unique_ptr<Communicator> split(int color, int key = 0, Site site = Site::here());
  std::unique_ptr<Communicator> duplicate(Site site = Site::here()) { return split(0, 0, site); }

 private:
  struct Window {  // a range of elements of one rank's tensor, put at a place in the result
    int rank;
    int64_t from, count, to;
  };
  static void check_reducible(const Tensor& x, ReduceOp op);
  void copy(Call call, const Tensor& shown, size_t longest, std::span<const Window> windows, Tensor& y);
  void fold_part(const Transport::Part& part, int64_t first, int64_t count, std::span<const int> ranks, ReduceOp op,
                 Tensor& to) const;
  void fold(Call call, const Tensor& x, int64_t begin, int64_t count, std::span<const int> ranks, ReduceOp op,
            Tensor& y);
  Tensor folded(Call call, const Tensor& x, std::span<const int> ranks, ReduceOp op);
  Tensor gathered(Call call, const Tensor& x, const Rows& rows, std::optional<GroupRank> root);
  Tensor scattered(Call call, const Tensor& x, const Rows& rows, GroupRank root);
  std::span<const int> ranks(int first, int last) const;
  Rows equal_rows(const char* verb, const Tensor& x) const;
  // Axis 0 of x must be `total`, or else this rank's own count.
  void check_rows(const char* verb, const Tensor& x, const Rows& rows, std::optional<int64_t> total) const;
  void check_rank(const char* verb, GroupRank rank) const;

  std::unique_ptr<Transport> transport_;
  std::vector<int> everyone_;  // 0, 1, ..., size - 1
};

// Calls `body` as n ranks that are threads of this process; see run_ranks.h.
void run_ranks(int n, const std::function<void(Communicator&)>& body);

}  // namespace weft
