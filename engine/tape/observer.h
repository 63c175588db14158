// SPDX-License-Identifier: Apache-2.0
#pragma once
// Observes the events of a tape in order, for checks. Without observers this costs a tape one test per op.
#include "weft/engine/tape/tape.h"

namespace weft {

class Tape::Observer {
 public:
  virtual ~Observer() = default;

  // Called for a new leaf, of a parameter or null, and for the result of every op, recorded or not, while the tape
  // follows placements.
  virtual void watched(const Var& leaf, const Parameter* parameter) = 0;
  virtual void computed(const Var& result, const Op& op, std::span<const Var* const> inputs) = 0;
  // Called when the placements of x have been changed. If x was the last value computed, its new placements replace
  // those of its op.
  virtual void placement_changed(const Var& x) = 0;

  // `arrived` is called with the gradient of every value, zeros if none reached it. Values computed between walk_begins
  // and walk_ends belong to the walk.
  virtual void walk_begins(bool on_all_ranks) = 0;
  virtual void arrived(const Var& gradient, const std::string& of, int64_t node, Placements placements) = 0;
  virtual void walk_ends(bool on_all_ranks) = 0;

  // Called before all ranks of a group, which has this key, run a collective, forward or in a walk.
  virtual void collective_begins(const void* group, const std::string& place) = 0;
};

}  // namespace weft
