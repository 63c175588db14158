#pragma once
// Sees what happens on a tape, in order: for checks. A tape that nobody observes pays one test per op.
#include "engine/tape.h"

namespace weft {

class Tape::Observer {
 public:
  virtual ~Observer() = default;

  // A new parameter, or the result of an op, recorded or not, wherever spreads are followed.
  virtual void watched(const Var& leaf, const Parameter& parameter) = 0;
  virtual void computed(const Var& result, const Op& op, std::span<const Var* const> inputs) = 0;
  // x is said to be spread as it is now; if it was the last to be seen, that is how it was meant from the beginning.
  virtual void respread(const Var& x) = 0;

  // The gradient that reached a value, zeros if none did. What is computed between begin and end is the walk's own.
  virtual void walk_begins(bool on_all_ranks) = 0;
  virtual void arrived(const Var& gradient, const std::string& of, int64_t node, Spreads spreads) = 0;
  virtual void walk_ends(bool on_all_ranks) = 0;

  // All ranks of a group, by its key, are about to do something together, here or in their walks.
  virtual void meeting(const void* group, const std::string& place) = 0;
};

}  // namespace weft
