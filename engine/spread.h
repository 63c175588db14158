#pragma once
// How a value relates to its counterparts on the other ranks of a group, carried by every Var. The engine only carries
// and combines spreads, so that an op which would count something once per rank, or drop a part of a sum, is refused
// when it is recorded; collectives/ gives them their meaning and changes them.
//
//   spread       values                    cotangents
//   Replicated   equal                     different; their sum is the gradient
//   Invariant    equal                     equal; each is the gradient
//   Varying      each rank its own         each rank its own
//   Partial      a sum is still pending    equal; each is the gradient of the sum
//   Same         equal                     not wanted: constants, which go with any of the others
//   unsaid       nobody has said           nobody has said
//
// Unsaid is what a plain Tensor is, and an equal value that meets one. It costs nothing where there is one rank. Where
// there is a group, whatever would need to know is refused: collectives, seeds, and ops with Invariant or Partial
// inputs.
#include <cstdint>
#include <string>

namespace weft {

class Op;

enum class Spread : uint8_t { unsaid, same, replicated, invariant, varying, partial };
std::string text(Spread spread);
Spread dual(Spread spread);  // of the cotangent: Replicated and Partial change places
// For tables.
namespace spread_letters {
inline constexpr Spread R = Spread::replicated, I = Spread::invariant, V = Spread::varying, P = Spread::partial,
                        S = Spread::same, unsaid = Spread::unsaid;
}
// For errors about what is unsaid.
inline constexpr const char* how_to_say =
    "a plain Tensor went into it: give tape.constant(x) for a rank's own values, same_everywhere(x) for equal ones";

// One spread for each group a tape has met, and one for all other groups. Group 0 of a tape is its first.
class Spreads {
 public:
  static constexpr int max_groups = 3;

  constexpr Spreads() = default;
  explicit constexpr Spreads(Spread everywhere) : bits_(static_cast<uint16_t>(everywhere)) {}

  Spread elsewhere() const { return static_cast<Spread>(bits_ & 15); }
  Spread in(int group) const {
    const int own = bits_ >> (4 * group + 4) & 15;
    return own == 0 ? elsewhere() : static_cast<Spread>(own - 1);
  }
  Spreads with(int group, Spread spread) const {
    Spreads result = *this;
    result.bits_ =
        static_cast<uint16_t>((bits_ & ~(15 << (4 * group + 4))) | (static_cast<int>(spread) + 1) << (4 * group + 4));
    return result;
  }
  bool anywhere(Spread spread) const {
    return elsewhere() == spread || in(0) == spread || in(1) == spread || in(2) == spread;
  }
  Spreads duals() const;
  bool operator==(const Spreads&) const = default;

 private:
  uint16_t bits_ = 0;  // four at a time: elsewhere, then a group's plus one, or zero where it is as elsewhere
};

// What an op is as a function of its inputs; a pending sum may only pass through where it is linear.
enum class Algebra : uint8_t {
  own,  // takes any spread and states that of its result itself: collectives
  nonlinear,
  linear,             // in all inputs together: a + b
  multilinear,        // in each input: a b
  linear_in_first,    // a / b
  linear_after_first  // in each input but the first: the slope of a non-linear op, times a cotangent
};

// What an input is to its op: one that the algebra speaks of, or data that only decide what happens to those, such as
// masks and indices.
enum class Role : uint8_t { term, data };

// Gathers the spreads of an op's inputs and finds that of its result.
class Combination {
 public:
  void add(Spreads input, Role role = Role::term);
  // Error, for one of the first `groups` groups, if the inputs do not go together: it names the op, the spreads and
  // what is missing. Where no group is known yet, such a result is unsaid instead.
  Spreads result(const Op& op, int groups) const;

 private:
  static constexpr int kept = 8;  // more than any op has inputs that its algebra tells apart
  Spreads inputs_[kept];
  Role roles_[kept];
  int count_ = 0;
};

}  // namespace weft
