// SPDX-License-Identifier: Apache-2.0
#pragma once
// One collective on one rank: the tensor that it exposes, and what it copies or folds from the tensors of other ranks.
#include <vector>

#include "weft/collectives/transport.h"
#include "weft/engine/tensor/pool.h"

namespace weft {

class CollectiveCall {
 public:
  // `count` elements of one rank's tensor, copied from element `from` to element `to` of the result.
  struct Window {
    int rank;
    int64_t from, count, to;
  };
  using Windows = std::vector<Window, pool::Allocator<Window>>;
  // The fold of y.size() elements of these ranks' tensors, from element `begin` on. If there are no ranks, y is not
  // changed.
  struct Fold {
    int64_t begin;
    std::vector<int, pool::Allocator<int>> ranks;
    ReduceOp op;
  };

  // `longest` is the largest number of bytes that any rank exposes.
  CollectiveCall(const Call& call, Tensor x, size_t longest, Tensor y, Windows windows);
  CollectiveCall(const Call& call, Tensor x, Tensor y, Fold fold);

  Tensor run(Transport& transport);  // the whole collective; returns its result
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
  Tensor staging_;                // y_, or host memory if the transport does not expose the memory of y's device
  bool must_synchronize_ = true;  // whether to wait for the card before peers read its memory, and after reading theirs
  Windows windows_;
  Fold fold_;
};

// Writes the reduction of x over all ranks to y, by `Transport::combine`, or in any order.
void all_reduce(Transport& transport, const Call& call, const Tensor& x, Tensor& y, std::span<const int> everyone,
                bool in_any_order);

}  // namespace weft
