// SPDX-License-Identifier: Apache-2.0
#pragma once
// Checks, as far as tapes know, that the sum of gradients over a group of ranks is the gradient. It is if every rank
// has a part of the gradient. It is not if every rank has the whole gradient, or the whole gradient of its own slice.
#include "weft/collectives/sharding.h"

namespace weft {

class SummedRanks {
 public:
  explicit SummedRanks(const Communicator& comm);

  // Error if the leaf of this parameter has a placement, over a group that the tape knows, that does not fit the sum.
  // Over the group `shards`, the leaf is this rank's part of the parameter.
  void expect_to_fit(const Parameter& parameter, const Tape& tape, Placements leaf,
                     const Communicator* shards = nullptr);
  void forget() { inside_.clear(); }  // call it when a backward ends: the next tape may have other groups

 private:
  void count_inside(const Tape& tape);

  Partition::Ranks ranks_;
  Partition::Ranks inside_;  // the number of ranks of each of the tape's groups that are among these ranks
};

}  // namespace weft
