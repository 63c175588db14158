// SPDX-License-Identifier: Apache-2.0
#pragma once
// What is folded where in a reduction on several nodes. All ranks of the group make the same plan. The ranks of a node
// fold the subtrees that have all their ranks there. Then every node receives its slice of the subtrees of all others
// and folds these. A slice is what the ranks of the node read. Where they read everything, all slices are of about
// equal size, and the nodes gather them.
//
// The results of a scan are the sums of all terms before each subtree of a node, or after it. Every rank adds to one of
// them what its scan takes of the subtree, which the node keeps.
#include "weft/collectives/fold.h"
#include "weft/collectives/transports/nodes/node_map.h"

namespace weft {

struct SumPlan {
  using Range = Transport::Range;
  struct Subtree {
    size_t node, index;  // in `subtrees` of the node
  };
  struct Result {
    std::vector<int> sources;
    std::vector<Subtree> subtrees;
    std::vector<int> first_ranks;  // of the subtrees
    FoldOrder order;
  };
  struct Scan {
    size_t result = none;          // to which a rank adds
    std::vector<size_t> kept;      // what it adds
    std::vector<int> first_ranks;  // of all of these
    size_t terms = 0;              // of ranks
    FoldOrder order = {};
  };

  // Of reductions over the ranks' tensors of so many bytes each.
  SumPlan(const NodeMap& map, const Transport::Reduction& reduction, size_t bytes);
  bool adds() const;  // whether any two terms are added

  static constexpr size_t none = ~size_t{0};
  std::vector<Result> results;                          // each once, however many ranks read it
  std::vector<size_t> result_of;                        // of each rank, or `none`
  std::vector<Range> results_of;                        // which results the ranks of each node read
  std::vector<std::vector<std::vector<int>>> subtrees;  // of each node: their ranks
  std::vector<Scan> scans;                              // of each rank of this node
  std::vector<std::vector<int>> kept;                   // subtrees of this node
  std::vector<Range> slices;                            // of each node, in elements
  std::vector<size_t> before;                           // the elements of all subtrees before a node's slice
  size_t most_subtrees = 0, elements = 0, all_slices = 0;
  bool few = false;      // elements: then every node folds all of them, which takes less time than gathering slices
  bool gathers = false;  // whether a slice is only a part of what the ranks of the node read

 private:
  void add_scan(const NodeMap& map, FunctionRef<bool(int, int)> reads, FoldOrder order, std::span<const int> everyone,
                std::span<const int> subtree);
  void cut(const NodeMap& map, const Transport::Reduction& reduction, size_t bytes);  // into the slices of the nodes
  size_t add_result(const NodeMap& map, size_t reading_node, std::span<const int> sources, FoldOrder order);
};

}  // namespace weft
