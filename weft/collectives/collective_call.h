// SPDX-License-Identifier: Apache-2.0
#pragma once
// One collective on one rank: the tensor that it exposes, and what it copies or folds from the tensors of other ranks.
#include <optional>
#include <vector>

#include "weft/collectives/transport.h"
#include "weft/engine/tensor/pool.h"

namespace weft {

class CollectiveCall {
 public:
  // What moves, in bytes: Transport::Ranges, and where in the result each rank's bytes are. If bytes of several ranks
  // are at the beginning, the result is their reduction. Nothing else overlaps.
  struct Moves {
    template <class T> using List = std::vector<T, pool::Allocator<T>>;  // by rank
    List<Transport::Range> of_peers, by_peers;
    List<size_t> to;
  };

  // `longest` is the largest number of bytes that any rank exposes.
  CollectiveCall(const Call& call, Tensor x, size_t longest, Tensor y, Moves moves);

  // The whole collective; returns its result. Reductions tell which rank reads which, and which bytes, unless all.
  // Sums of slices of one size may be in any order.
  Tensor run(Transport& transport, bool in_any_order, std::optional<Transport::Reads> reads = {},
             std::span<const Transport::Range> slices = {});
  std::unique_ptr<Transport::Started> start(Transport& transport, std::optional<Transport::Reads> reads = {},
                                            std::span<const Transport::Range> slices = {});
  Tensor finish(Transport::Started& started);

 private:
  void prepare(const Transport& transport);
  bool combine(Transport& transport, Transport::Reads reads, std::span<const Transport::Range> slices);
  Transport::Ranges ranges() const { return {moves_.of_peers, moves_.by_peers}; }
  void read(const Transport::Part& part);
  void copy(const Transport::Part& part, int rank);
  void fold(const Transport::Part& part);
  Fold fold_for(int reader, std::span<const int> ranks) const;
  Tensor result();

  Call call_;
  Origin origin_;  // of the result
  Tensor x_;
  size_t longest_;
  Tensor y_;
  Tensor staging_;                // y_, or host memory if the transport does not expose the memory of y's device
  bool must_synchronize_ = true;  // whether to wait for the card before peers read its memory, and after reading theirs
  Moves moves_;
  Moves::List<int> sources_;  // the ranks of which this one reads anything
  bool folds_ = false;
  int rank_ = 0;  // in the group of the transport
};

// Writes the reduction of x over all ranks to y, by `Transport::combine`, or in any order.
void all_reduce(Transport& transport, const Call& call, const Tensor& x, Tensor& y, std::span<const int> everyone,
                bool in_any_order);

}  // namespace weft
