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

namespace {

// A group of ranks over which a loss is not each rank's own.
struct Holding {
  const Partition* partition;
  Placement placement;
  const Partition::Ranks& ranks() const { return partition->mine(); }
  bool has_all_of(const Holding& other) const {
    return std::includes(ranks().begin(), ranks().end(), other.ranks().begin(), other.ranks().end());
  }
  bool beside(const Holding& other) const {
    return partition->is_axis_beside(*other.partition) || other.partition->is_axis_beside(*partition);
  }
};

}  // namespace

// The number of ranks that hold the whole loss.
double Tape::holders(Placements loss, const char* who) const {
  std::vector<Holding> holdings;
  for (int i = 0; i < groups(); ++i) {
    if (!uses_group(i) || loss.in(i) == Placement::varying) continue;
    if (loss.in(i) == Placement::unknown)
      fail({who, ": the placement of the loss is unknown over ranks ", text(partition(i).mine()), "; ", how_to_place,
            ", or pass a seed"});
    if (partition(i).mine().size() > 1) holdings.push_back({&partition(i), loss.in(i)});
  }
  // Of groups that say the same, the largest is enough.
  for (size_t i = 0; i < holdings.size(); ++i)
    for (size_t j = holdings.size(); j-- > 0;)
      if (j != i && holdings[i].placement == holdings[j].placement && holdings[i].has_all_of(holdings[j])) {
        holdings.erase(holdings.begin() + static_cast<std::ptrdiff_t>(j));
        i -= j < i;
      }
  double count = 1;
  for (const Holding& one : holdings) {
    for (const Holding& other : holdings)
      if (&one != &other && !one.beside(other))
        fail({who, ": the loss is ", text(one.placement), " over ranks ", text(one.ranks()), " and ",
              text(other.placement), " over ranks ", text(other.ranks()),
              ", so it is not known how often it counts; pass a seed"});
    const bool whole = one.placement == Placement::replicated || one.placement == Placement::constant;
    if (whole) count *= static_cast<double>(one.ranks().size());
  }
  return count;
}

}  // namespace weft
