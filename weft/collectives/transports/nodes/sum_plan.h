// SPDX-License-Identifier: Apache-2.0
#pragma once
// What is folded where in a reduction on several nodes. All ranks of the group make the same plan. The ranks of a node
// fold the subtrees that have all their ranks there. Then every node receives its slice of the subtrees of all others
// and folds these. A slice is what the ranks of the node read. Where they read everything, all slices are of about
// equal size, and the nodes gather them.
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
  };

  // Of reductions over the ranks' tensors of so many bytes each.
  SumPlan(const NodeMap& map, const Transport::Sums& sums, size_t bytes);
  bool adds() const;  // whether any two terms are added

  std::vector<Result> results;    // each once, however many ranks read it
  std::vector<size_t> result_of;  // of each rank, or `none`
  static constexpr size_t none = ~size_t{0};
  std::vector<Range> results_of;                        // which results the ranks of each node read
  std::vector<std::vector<std::vector<int>>> subtrees;  // of each node: their ranks
  std::vector<Range> slices;                            // of each node, in elements
  std::vector<size_t> before;                           // the elements of all subtrees before a node's slice
  size_t most_subtrees = 0, elements = 0, all_slices = 0;
  bool few = false;      // elements: then every node folds all of them, which takes less time than gathering slices
  bool gathers = false;  // whether a slice is only a part of what the ranks of the node read

 private:
  void add_subtrees(const NodeMap& map, Result& result, std::span<const int> ranks);
};

}  // namespace weft
