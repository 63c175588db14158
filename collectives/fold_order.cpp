// SPDX-License-Identifier: Apache-2.0
#include "weft/collectives/fold_order.h"

namespace weft {

FoldOrder FoldOrder::of(Verb verb, int reader) {
  if (verb == Verb::scan || verb == Verb::exscan) return {Kind::before, reader};
  if (verb == Verb::reverse_scan || verb == Verb::reverse_exscan) return {Kind::after, reader};
  return {};
}

FoldOrder::Parts FoldOrder::parts(std::span<const int> ranks) const {
  const auto cut = [&](int r) {
    const auto first = static_cast<size_t>(std::lower_bound(ranks.begin(), ranks.end(), r) - ranks.begin());
    return std::pair(ranks.first(first), ranks.subspan(first));
  };
  if (kind == Kind::before) {
    const bool own = ranks.back() == rank;
    const int begin = own ? rank : rank & (rank - 1);  // of the nearest half
    if (const auto [others, nearest] = cut(begin); !others.empty()) return {others, nearest, to(begin)};
  }
  if (kind == Kind::after) {
    const bool own = ranks.front() == rank;
    const int next = rank + 1, end = own ? next : next + (next & -next);  // of the nearest half
    if (const auto [nearest, others] = cut(end); !others.empty()) return {others, nearest, to(end - 1)};
  }
  const size_t half = first_half(ranks);
  return {ranks.first(half), ranks.subspan(half)};
}

std::vector<std::span<const int>> FoldOrder::tree_parts(std::span<const int> ranks) const {
  std::vector<std::span<const int>> all;
  for (FoldOrder order = *this; order.scans() && ranks.size() > 1;) {
    const Parts two = order.parts(ranks);
    order = two.of_first;
    if (!order.scans()) break;
    all.push_back(two.second);
    ranks = two.first;
  }
  if (!ranks.empty()) all.push_back(ranks);
  if (kind == Kind::before) std::reverse(all.begin(), all.end());
  return all;
}

}  // namespace weft
