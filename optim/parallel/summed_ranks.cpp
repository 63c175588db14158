// SPDX-License-Identifier: Apache-2.0
#include "weft/optim/parallel/summed_ranks.h"

#include <algorithm>

namespace weft {

// Whether the parameter's sharding describes how these ranks hold it.
static bool is_described(const Parameter& parameter, const Partition::Ranks& ranks) {
  if (!parameter.sharding) return false;
  const Communicator& group = parameter.sharding->group;
  return std::all_of(ranks.begin(), ranks.end(), [&](int rank) {
    for (int r = 0; r < group.size(); ++r)
      if (group.global({r}).value == rank) return true;
    return false;
  });
}

SummedRanks::SummedRanks(const Communicator& comm) {
  for (int r = 0; r < comm.size(); ++r) ranks_.push_back(comm.global({r}).value);
  std::sort(ranks_.begin(), ranks_.end());
}

void SummedRanks::count_inside(const Tape& tape) {
  for (int group = static_cast<int>(inside_.size()); group < tape.groups(); ++group) {
    const Partition::Ranks& members = tape.partition(group).mine();
    inside_.push_back(static_cast<int>(std::count_if(members.begin(), members.end(), [this](int rank) {
      return std::binary_search(ranks_.begin(), ranks_.end(), rank);
    })));
  }
}

// A group that is only partly among the summed ranks is not checked, since its placement may be anything on the others.
void SummedRanks::expect_to_fit(const Parameter& parameter, const Tape& tape, Placements leaf,
                                const Communicator* shards) {
  count_inside(tape);
  for (int group = 0; group < tape.groups(); ++group) {
    const Partition::Ranks& members = tape.partition(group).mine();
    const auto size = static_cast<int>(members.size()), inside = inside_[static_cast<size_t>(group)];
    const Placement placement = leaf.in(group);
    if (!tape.uses_group(group) || size == 1 || is_described(parameter, members)) continue;
    if (shards && tape.partition(group).is_inside(*shards->partition())) continue;
    if (inside <= 1 && placement == Placement::replicated)
      fail({"gradients: each of the ranks ", text(members), " has a part of that of ", parameter.name,
            ", but it is summed over ", text(ranks_),
            "; train it over all of these ranks together, or say with its sharding that it is each rank's own"});
    if (inside <= 1 && placement == Placement::varying)
      fail({"gradients: ", parameter.name, " is a slice of each of the ranks ", text(members),
            " and does not say so, so norms would be those of slices; set its sharding to divided(...)"});
    if (inside == size && placement != Placement::replicated && placement != Placement::constant)
      fail({"gradients: that of ", parameter.name, " is ", text(placement), " over the ranks ", text(members),
            ", so their sum is not the gradient; set its sharding to divided(...) or invariant(...)"});
  }
}

}  // namespace weft
