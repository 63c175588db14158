// SPDX-License-Identifier: Apache-2.0
#pragma once
// The order in which terms of ranks are folded. It is a binary tree over rank numbers: the sum of ranks 0 to 7 is that
// of 0 to 3 plus that of 4 to 7, and so on down. Ranks that take no part are left out. Whoever has the terms of all
// ranks of a subtree may add them early, such as a node before it uses the network. So the bits of a sum depend on the
// number of ranks alone, and not on where ranks are or how data move between them.
//
// A scan goes down the same tree to its rank. It adds the sums of the halves that it leaves on its side, from the
// widest to the nearest, and the rank's own term last: that of rank 6 is ((0 to 3) + (4 and 5)) + 6. So all ranks of a
// subtree need but one sum of the terms before it, to which each adds what it needs of the subtree.
#include <algorithm>
#include <bit>
#include <span>
#include <vector>

#include "weft/collectives/call.h"

namespace weft {

// How many of these ranks, which ascend and are at least two, the tree has in its first half.
inline size_t first_half(std::span<const int> ranks) {
  const auto first = static_cast<unsigned>(ranks.front()), last = static_cast<unsigned>(ranks.back());
  const auto second_half = static_cast<int>(last & ~(std::bit_floor(first ^ last) - 1));
  return static_cast<size_t>(std::lower_bound(ranks.begin(), ranks.end(), second_half) - ranks.begin());
}

struct FoldOrder {
  enum class Kind : uint8_t { tree, before, after } kind = Kind::tree;
  int rank = 0;  // to which a scan goes down

  static FoldOrder of(Verb verb, int reader);
  bool scans() const { return kind != Kind::tree; }
  FoldOrder to(int reader) const { return {kind, reader}; }
  // The two parts of at least two ranks that are added last. The second is a sum by the tree.
  struct Parts;
  Parts parts(std::span<const int> ranks) const;
  // All parts that are sums by the tree, ascending.
  std::vector<std::span<const int>> tree_parts(std::span<const int> ranks) const;
};
struct FoldOrder::Parts {
  std::span<const int> first, second;
  FoldOrder of_first = {};
};

}  // namespace weft
