#pragma once
// One collective on one rank: what it shows, and what it makes of what the others show.
#include <vector>

#include "collectives/transport.h"
#include "engine/pool.h"

namespace weft {

class Meeting {
 public:
  // A range of elements of one rank's tensor, copied to a place in the result.
  struct Window {
    int rank;
    int64_t from, count, to;
  };
  using Windows = std::vector<Window, pool::Allocator<Window>>;
  // The fold of y.size() elements of these ranks' tensors, from element `begin` on. Without ranks y stays as it is.
  struct Fold {
    int64_t begin;
    std::vector<int, pool::Allocator<int>> ranks;
    ReduceOp op;
  };

  // `longest` is the most bytes that any rank shows.
  Meeting(const Call& call, Tensor x, size_t longest, Tensor y, Windows windows);
  Meeting(const Call& call, Tensor x, Tensor y, Fold fold);

  Tensor now(Transport& transport);  // all of it, and its result
  std::unique_ptr<Transport::Started> start(Transport& transport);
  Tensor finish(Transport::Started& started);

 private:
  void prepare(const Transport& transport);
  void read(const Transport::Part& part);
  void copy(const Transport::Part& part, const Window& window);
  Tensor result();

  Call call_;
  Origin origin_;  // of the result
  Tensor x_;
  size_t longest_;
  Tensor y_;
  Tensor landing_;     // y_, or where it is made if the group does not meet on y's device
  bool waits_ = true;  // for the card, before peers may look and before they may change what was read
  Windows windows_;
  Fold fold_;
};

// What every rank has of the reduction of all x, in y: the shared work of `Transport::combine`, or in any order.
void all_reduce(Transport& transport, const Call& call, const Tensor& x, Tensor& y, std::span<const int> everyone,
                bool in_any_order);

}  // namespace weft
