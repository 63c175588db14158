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
  // What moves, in bytes: Transport::Ranges, and where in the result each rank's bytes land. Where bytes of several
  // ranks land on the same place, the result is their reduction.
  struct Moves {
    template <class T> using List = std::vector<T, pool::Allocator<T>>;  // by rank
    List<Transport::Range> of_peers, by_peers;
    List<size_t> to;

    // How the bytes of the ranks land in a result of so many bytes: all on the whole of it, or side by side so that
    // they fill it, as in all verbs of verbs.h, or in any other way.
    enum class Landing : uint8_t { nothing, on_each_other, side_by_side, anyhow };
    Landing landing(size_t bytes_of_result) const;
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
  void add_up(Tensor& result);

  Call call_;
  Origin origin_;  // of the result
  Tensor x_;
  size_t longest_;
  Tensor y_;
  Tensor staging_;                // where bytes land: y_, or host memory if the transport does not expose y's device
  bool must_synchronize_ = true;  // whether to wait for the card before peers read its memory, and after reading theirs
  Moves moves_;
  Moves::List<int> sources_;  // the ranks of which this one reads anything
  Moves::Landing landing_;
  Moves::List<size_t> places_;  // if they land anyhow, they are received one after the other, and then put here
  size_t received_ = 0;         // so many bytes
  int rank_ = 0;                // in the group of the transport
};

// Writes the reduction of x over all ranks to y, by `Transport::combine`, or in any order.
void all_reduce(Transport& transport, const Call& call, const Tensor& x, Tensor& y, std::span<const int> everyone,
                bool in_any_order);

}  // namespace weft
