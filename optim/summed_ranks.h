#pragma once
// Whether the sum of gradients over a group of ranks is the gradient, as far as tapes know. It is where every rank has
// a part of it, and is not where each has all of it, or all of that of its own slice.
#include "collectives/group_placement.h"

namespace weft {

class SummedRanks {
 public:
  explicit SummedRanks(const Communicator& comm);

  // Error if, over some group that the tape knows, the leaf of this parameter is spread otherwise than the sum needs.
  // Over `apart` the leaf is not the parameter but this rank's part of it.
  void expect_to_fit(const Parameter& parameter, const Tape& tape, Spreads leaf, const Communicator* apart = nullptr);
  void forget() { inside_.clear(); }  // when a backward ends: the next may be of a tape with other groups

 private:
  void count_inside(const Tape& tape);

  Tape::Members ranks_;
  Tape::Members inside_;  // how many of each of the tape's groups are among these ranks
};

}  // namespace weft
