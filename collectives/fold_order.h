// SPDX-License-Identifier: Apache-2.0
#pragma once
// The order in which terms of ranks are folded. It is a binary tree over rank numbers: the sum of ranks 0 to 7 is that
// of 0 to 3 plus that of 4 to 7, and so on down. Ranks that take no part are left out. Whoever has the terms of all
// ranks of a subtree may add them early, such as a node before it uses the network. So the bits of a sum depend on the
// number of ranks alone, and not on where ranks are or how data move between them.
//
// A scan goes down the same tree to its rank. At each branch whose second half has the rank, it adds the sum of the
// first half; the rank's own term comes last. So the scan of rank 6 is ((0 to 3) + (4 and 5)) + 6. A scan of the ranks
// after is its mirror image. All ranks of a subtree begin with the same sum, of the terms before it.
#include <algorithm>
#include <bit>
#include <span>
#include <vector>

#include "weft/collectives/call.h"

namespace weft {

// How many of these ranks, which ascend and are at least two, the tree has in its first half. Ranks 4 to 6 are 100 to
// 110 in binary: the highest bit in which they differ is that of 2, so the second half begins at 110.
inline size_t first_half(std::span<const int> ranks) {
  const auto first = static_cast<unsigned>(ranks.front()), last = static_cast<unsigned>(ranks.back());
  const auto second_half = static_cast<int>(last & ~(std::bit_floor(first ^ last) - 1));
  return static_cast<size_t>(std::lower_bound(ranks.begin(), ranks.end(), second_half) - ranks.begin());
}

struct FoldOrder {
  enum class Kind : uint8_t { tree, before, after } kind = Kind::tree;
  int rank = 0;  // whose scan it is

  static FoldOrder of(Verb verb, int reader);
  bool scans() const { return kind != Kind::tree; }
  FoldOrder to(int reader) const { return {kind, reader}; }
  // The two parts whose sum is the sum of these ranks, which are at least two. The second has the order of the tree.
  struct Parts;
  Parts parts(std::span<const int> ranks) const;
  // All parts that have the order of the tree, ascending.
  std::vector<std::span<const int>> tree_parts(std::span<const int> ranks) const;
};
struct FoldOrder::Parts {
  std::span<const int> first, second;
  FoldOrder of_first = {};
};

}  // namespace weft
