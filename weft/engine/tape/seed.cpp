// SPDX-License-Identifier: Apache-2.0
// The seed of a walk for which the caller gives none.
#include <algorithm>

#include "weft/engine/tape/tape.h"

namespace weft {

Tensor Tape::unit_seed(const Var& loss, const char* who) const {
  require(loss.defined(), who, ": the loss is an empty Var");
  require(loss.size() == 1, who, ": the loss must be a scalar, not ", loss.shape(),
          "; reduce it with sum or mean, or pass a seed");
  return Tensor::full(loss.shape(), 1 / holders(loss.placements(), who), loss.dtype(), loss.device());
}

static std::string text(const Tape::Members& ranks) {
  std::string list;
  for (const int rank : ranks) list += (list.empty() ? "{" : ", ") + std::to_string(rank);
  return list + "}";
}

// The number of ranks that hold the whole loss.
double Tape::holders(Placements loss, const char* who) const {
  double count = 1;
  for (int i = 0; i < group_count_; ++i) {
    const Members& mine = groups_[static_cast<size_t>(i)].members;
    if (loss.in(i) == Placement::unknown)
      fail({who, ": the placement of the loss is unknown over ranks ", text(mine), "; ", how_to_place,
            ", or pass a seed"});
    if (loss.in(i) == Placement::varying) continue;
    bool largest = true;
    for (int j = 0; j < group_count_; ++j) {
      if (j == i || loss.in(j) == Placement::varying) continue;
      const Members& other = groups_[static_cast<size_t>(j)].members;
      Members shared;
      std::set_intersection(mine.begin(), mine.end(), other.begin(), other.end(), std::back_inserter(shared));
      const bool inside = shared.size() == mine.size(), around = shared.size() == other.size();
      const bool nested = (inside || around) && loss.in(i) == loss.in(j);
      if (shared.size() > 1 && !nested)
        fail({who, ": the loss is ", text(loss.in(i)), " over ranks ", text(mine), " and ", text(loss.in(j)),
              " over ranks ", text(other), ", so it is not known how often it counts; pass a seed"});
      largest = largest && !(inside && (!around || j < i));
    }
    const bool whole = loss.in(i) == Placement::replicated || loss.in(i) == Placement::constant;
    if (whole && largest) count *= static_cast<double>(mine.size());
  }
  return count;
}

}  // namespace weft
