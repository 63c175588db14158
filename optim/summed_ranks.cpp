#include "optim/summed_ranks.h"

#include <algorithm>

namespace weft {

static std::string listed(const Tape::Members& ranks) {
  std::string list;
  for (const int rank : ranks) list += (list.empty() ? "{" : ", ") + std::to_string(rank);
  return list + "}";
}

// Whether the placement tells how these ranks hold the parameter.
static bool is_told(const Parameter& parameter, const Tape::Members& ranks) {
  if (!parameter.placement) return false;
  const Communicator& group = parameter.placement->group;
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
    const Tape::Members& members = tape.members(group);
    inside_.push_back(static_cast<int>(std::count_if(members.begin(), members.end(), [this](int rank) {
      return std::binary_search(ranks_.begin(), ranks_.end(), rank);
    })));
  }
}

// A group that crosses the sum's ranks says nothing: along its other axis it may be anything.
void SummedRanks::expect_to_fit(const Parameter& parameter, const Tape& tape, Spreads leaf, const Communicator* apart) {
  count_inside(tape);
  for (int group = 0; group < tape.groups(); ++group) {
    const Tape::Members& members = tape.members(group);
    const auto size = static_cast<int>(members.size()), inside = inside_[static_cast<size_t>(group)];
    const Spread spread = leaf.in(group);
    if (size == 1 || (apart && tape.group(apart) == group) || is_told(parameter, members)) continue;
    if (inside <= 1 && spread == Spread::replicated)
      fail({"gradients: each of the ranks ", listed(members), " has a part of that of ", parameter.name,
            ", but it is summed over ", listed(ranks_),
            "; train it over all of these ranks together, or say with its placement that it is each rank's own"});
    if (inside <= 1 && spread == Spread::varying)
      fail({"gradients: ", parameter.name, " is a slice of each of the ranks ", listed(members),
            " and does not say so, so norms would be those of slices; set its placement to divided(...)"});
    if (inside == size && spread != Spread::replicated && spread != Spread::same)
      fail({"gradients: that of ", parameter.name, " is ", text(spread), " over the ranks ", listed(members),
            ", so their sum is not the gradient; set its placement to divided(...) or invariant(...)"});
  }
}

}  // namespace weft
