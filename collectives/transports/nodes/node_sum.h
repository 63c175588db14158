// SPDX-License-Identifier: Apache-2.0
#pragma once
// The steps of a reduction on several nodes (sum_plan.h), and the places of its terms on the board of a node.
#include "weft/collectives/transports/nodes/sum_plan.h"

namespace weft {

class NodeSum {
 public:
  using Range = Transport::Range;
  NodeSum(const NodeMap& map, const Transport::Reduction& reduction, size_t bytes);

  const SumPlan& plan() const { return plan_; }
  size_t board_bytes() const { return board_bytes_; }
  // A share of the bytes of the subtrees of this node. `peers` are the addresses of the first byte of the share.
  void fold_subtrees(std::span<const std::byte* const> peers, Range share, std::byte* board) const;
  NodeSwap swap() const;  // gives each node its slice of all subtrees
  void unpack(const Transport::Part& part, std::byte* board) const;
  void fold_slice(std::byte* board) const;
  NodeSwap gathering() const;  // of the folded slices of what the ranks of each node read
  void unpack_gathered(const Transport::Part& part, std::byte* board) const;
  void take(int rank, const std::byte* board, std::span<std::byte> result) const;  // what the rank reads, or its scan

 private:
  Range slices_of(size_t node, Range elements) const;
  void fold_subtree(std::span<const std::byte* const> peers, std::span<const int> subtree, Range elements, Range share,
                    std::byte* place) const;
  void add_scan(const SumPlan::Scan& scan, const std::byte* board, std::span<std::byte> result) const;

  const NodeMap& map_;
  const Fold fold_;
  std::vector<Range> read_slices_;  // of each rank, in bytes; empty if ranks read everything
  const SumPlan plan_;
  const size_t size_, summed_, folded_;  // of an element: of a term, a subtree, a result
  const Range slice_, my_results_, to_fold_;
  // On the board: the subtrees of this node; its slice of those of each node; that slice folded; whole results; what
  // scans of this node add to them.
  size_t out_ = 0, results_ = 0, gathered_ = 0, kept_ = 0, board_bytes_ = 0;
  std::vector<size_t> came_;
};

}  // namespace weft
