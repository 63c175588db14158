// SPDX-License-Identifier: Apache-2.0
#pragma once
// The groups of ranks that one job has made by splits, as far as this rank is in them and they still exist. A tape
// learns all of them when it meets the first, since a collective over one changes placements over the others.
#include <algorithm>
#include <memory>
#include <vector>

#include "weft/engine/tape/partition.h"

namespace weft {

class JobGroups {
 public:
  using Group = std::shared_ptr<const Partition>;

  // The same groups as of an earlier communicator are not added twice. Groups of one rank are: on one rank the axes of
  // a grid are different groups, as on several.
  Group add(Partition partition) {
    std::erase_if(groups_, [](const auto& group) { return group.expired(); });
    for (const auto& group : groups_)
      if (Group known = group.lock(); *known == partition && !known->is_of_single_ranks()) return known;
    const auto group = std::make_shared<const Partition>(std::move(partition));
    if (!whole_) whole_ = group;
    groups_.push_back(group);
    return group;
  }
  // Whether the group has all ranks of the job.
  bool is_whole(const Group& group) const { return group == whole_; }
  // Once for each tape, so without an allocation of the system.
  std::vector<Group, pool::Allocator<Group>> all() const {
    std::vector<Group, pool::Allocator<Group>> result;
    for (const auto& group : groups_)
      if (Group known = group.lock()) result.push_back(std::move(known));
    return result;
  }

 private:
  std::vector<std::weak_ptr<const Partition>> groups_;  // as old as the communicators of them
  Group whole_;                                         // of the first communicator
};

}  // namespace weft
