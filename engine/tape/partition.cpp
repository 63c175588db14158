// SPDX-License-Identifier: Apache-2.0
#include "weft/engine/tape/partition.h"

#include <algorithm>

namespace weft {

Partition::Partition(std::vector<Ranks> groups, size_t mine) : groups_(std::move(groups)), mine_(groups_[mine]) {
  std::sort(mine_.begin(), mine_.end());
  for (size_t g = 0; g < groups_.size(); ++g) {
    largest_ = std::max(largest_, groups_[g].size());
    for (size_t place = 0; place < groups_[g].size(); ++place) {
      const auto rank = static_cast<size_t>(groups_[g][place]);
      if (rank >= homes_.size()) homes_.resize(rank + 1);
      homes_[rank] = {static_cast<int>(g), static_cast<int>(place)};
    }
  }
}

bool Partition::is_inside(const Partition& other) const {
  return std::all_of(groups_.begin(), groups_.end(), [&](const Ranks& ranks) {
    const int around = other.home(ranks.front()).group;
    return around >= 0 &&
           std::all_of(ranks.begin(), ranks.end(), [&](int rank) { return other.home(rank).group == around; });
  });
}

// Whether the ranks of a and b that are at the same place are in one group.
bool Partition::in_same_groups(const Ranks& a, const Ranks& b) const {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [this](int one, int another) {
    return home(one).group >= 0 && home(one).group == home(another).group;
  });
}

bool Partition::is_axis_beside(const Partition& other) const {
  return std::all_of(groups_.begin(), groups_.end(), [&](const Ranks& ranks) {
    const Home first = other.home(ranks.front());
    return std::all_of(ranks.begin(), ranks.end(), [&](int rank) {
      const Home here = other.home(rank);
      return here.group >= 0 && here.place == first.place &&
             in_same_groups(other.group(here.group), other.group(first.group));
    });
  });
}

std::string text(const Partition::Ranks& ranks) {
  std::string list;
  for (const int rank : ranks) list += (list.empty() ? "{" : ", ") + std::to_string(rank);
  return list + "}";
}

}  // namespace weft
