// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which ranks of a group are on which node.
#include <vector>

#include "weft/collectives/transport.h"

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

// Copies what is in both ranges of bytes; the data and the place are those of the ranges' beginnings.
inline void copy_common(Transport::Range from, const std::byte* data, Transport::Range to, std::byte* place) {
  const size_t first = std::max(from.first, to.first), last = std::min(from.last, to.last);
  if (first < last) std::copy_n(data + (first - from.first), last - first, place + (first - to.first));
}

// What the leaders of the nodes exchange. The bytes that leave a node are `out` on its board; the ranges are by node.
struct NodeSwap {
  Transport::Range out;
  size_t longest;  // that any node lets others read
  std::vector<Transport::Range> of_peers, by_peers;
  Transport::Ranges ranges() const { return {of_peers, by_peers}; }
};

}  // namespace weft
