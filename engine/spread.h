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
#include <cstdint>
#include <string>

namespace weft {

class Op;

enum class Spread : uint8_t { unknown, replicated, invariant, varying, partial };
std::string text(Spread spread);
Spread dual(Spread spread);  // of the cotangent: Replicated and Partial change places

// One spread for each group a tape has met, and one for all other groups. Group 0 of a tape is its first.
class Spreads {
 public:
  static constexpr int max_groups = 3;

  constexpr Spreads() = default;
  explicit constexpr Spreads(Spread everywhere) : bits_(static_cast<uint16_t>(everywhere)) {}

  Spread elsewhere() const { return static_cast<Spread>(bits_ & 15); }
  Spread in(int group) const {
    const auto own = static_cast<Spread>(bits_ >> (4 * group + 4) & 15);
    return own == Spread::unknown ? elsewhere() : own;
  }
  Spreads with(int group, Spread spread) const {
    Spreads result = *this;
    result.bits_ =
        static_cast<uint16_t>((bits_ & ~(15 << (4 * group + 4))) | static_cast<int>(spread) << (4 * group + 4));
    return result;
  }
  Spreads duals() const;
  bool operator==(const Spreads&) const = default;

 private:
  uint16_t bits_ = 0;
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

// Gathers the spreads of an op's inputs and finds that of its result.
class Combination {
 public:
  void add(Spreads input);
  // Error, for one of the first `groups` groups, if the inputs do not go together: it names the op, the spreads and
  // what is missing. Where no group is known yet, such a result is unknown instead.
  Spreads result(const Op& op, int groups) const;

 private:
  static constexpr int kept = 8;  // more than any op has inputs that its algebra tells apart
  Spreads inputs_[kept];
  int count_ = 0;
};

}  // namespace weft
