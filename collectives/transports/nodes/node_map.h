// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which ranks of a group are on which node.
#include <algorithm>
#include <cstddef>
#include <vector>

namespace weft {

struct NodeMap {
  std::vector<size_t> node_of;             // of each rank
  std::vector<std::vector<int>> ranks_of;  // of each node, ascending
  size_t node = 0;                         // this rank's

  size_t ranks() const { return node_of.size(); }
  size_t nodes() const { return ranks_of.size(); }
  const std::vector<int>& here() const { return ranks_of[node]; }
  size_t most_ranks() const {  // on any node
    size_t most = 0;
    for (const auto& ranks : ranks_of) most = std::max(most, ranks.size());
    return most;
  }
};

}  // namespace weft
