// SPDX-License-Identifier: Apache-2.0
#pragma once
// How a value relates to its counterparts on the other ranks of a group; every Var has placements. The engine combines
// the placements of an op's inputs when the op is recorded. It rejects an op that would count a value once per rank, or
// lose a part of a sum. The conversions in collectives/ change placements.
//
//   placement    values                    cotangents
//   Replicated   equal                     different; their sum is the gradient
//   Invariant    equal                     equal; each is the gradient
//   Varying      each rank its own         each rank its own
//   Partial      terms of a pending sum    equal; each is the gradient of the sum
//   Constant     equal                     not needed; constants combine with all other placements
//   unknown      unknown                   unknown
//
// A plain Tensor is unknown, and so is the result of an op on it and equal values. With one rank this has no effect.
// With a group, collectives, seeds, and ops with Invariant or Partial inputs reject unknown placements.
//
// Varying claims nothing of the values, so it is true of any value whose gradient may be summed over the group.
#include <cstdint>
#include <string>

namespace weft {

class Op;

enum class Placement : uint8_t { unknown, constant, replicated, invariant, varying, partial };
std::string text(Placement placement);
// That of the cotangent: Replicated and Partial are duals of each other.
constexpr Placement dual(Placement placement) {
  switch (placement) {
    case Placement::replicated: return Placement::partial;
    case Placement::partial: return Placement::replicated;
    case Placement::constant: return Placement::unknown;
    default: return placement;
  }
}
// For tables.
namespace placement_letters {
inline constexpr Placement R = Placement::replicated, I = Placement::invariant, V = Placement::varying,
                           P = Placement::partial, C = Placement::constant, unknown = Placement::unknown;
}
// For errors about unknown placements.
inline constexpr const char* how_to_place =
    "a plain Tensor went into it: give tape.constant(x) for a rank's own values, replicated_constant(x) for equal ones";

// One placement for each group that a tape knows, and one for all other groups.
class Placements {
 public:
  static constexpr int max_groups = 15;

  constexpr Placements() = default;
  explicit constexpr Placements(Placement everywhere) : bits_(static_cast<uint64_t>(everywhere)) {}

  Placement elsewhere() const { return static_cast<Placement>(bits_ & 15); }
  Placement in(int group) const {
    const uint64_t own = bits_ >> shift(group) & 15;
    return own == 0 ? elsewhere() : static_cast<Placement>(own - 1);
  }
  Placements with(int group, Placement placement) const {
    const uint64_t own = placement == elsewhere() ? 0 : static_cast<uint64_t>(placement) + 1;
    Placements result = *this;
    result.bits_ = (bits_ & ~(uint64_t{15} << shift(group))) | own << shift(group);
    return result;
  }
  bool alike() const { return bits_ < 16; }  // one placement for all groups
  bool anywhere(Placement placement) const {
    if (elsewhere() == placement) return true;
    for (uint64_t own = bits_ >> 4; own; own >>= 4)
      if ((own & 15) == static_cast<uint64_t>(placement) + 1) return true;
    return false;
  }
  Placements duals() const { return alike() ? Placements(dual(elsewhere())) : duals_of_each(); }
  bool operator==(const Placements&) const = default;

 private:
  Placements duals_of_each() const;
  static constexpr int shift(int group) { return 4 * group + 4; }

  uint64_t bits_ = 0;  // four bits for elsewhere, then four per group: its placement plus one, or 0 if as elsewhere
};

// The algebraic properties of an op. A Partial input is accepted only where the op is linear in it.
enum class Algebra : uint8_t {
  own,  // accepts any placement, and sets that of its result itself: collectives
  nonlinear,
  linear,             // in all inputs together: a + b
  multilinear,        // in each input: a b
  linear_in_first,    // a / b
  linear_after_first  // in each input but the first: the slope of a non-linear op, times a cotangent
};

// The role of an input: a term, to which the algebra of the op applies, or data such as masks and indices.
enum class Role : uint8_t { term, data };

// Collects the placements of an op's inputs and computes those of its result.
class Combination {
 public:
  void add(Placements input, Role role = Role::term);
  // Error if the inputs cannot be combined in one of the first `groups` groups. It names the op, the placements and the
  // remedy. For all other groups such a result is unknown instead.
  Placements result(const Op& op, int groups) const;

 private:
  static constexpr int max_inputs = 8;  // more than the inputs of any op that does not treat all of them alike
  Placements inputs_[max_inputs];
  Role roles_[max_inputs];
  int count_ = 0;
};

}  // namespace weft
