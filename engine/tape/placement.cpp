// SPDX-License-Identifier: Apache-2.0
#include "weft/engine/tape/placement.h"

#include <algorithm>

#include "weft/engine/tape/op.h"

namespace weft {

std::string text(Placement placement) {
  constexpr const char* names[] = {"unknown", "Constant", "Replicated", "Invariant", "Varying", "Partial"};
  return names[static_cast<int>(placement)];
}

Placements Placements::duals_of_each() const {
  Placements result(dual(elsewhere()));
  for (int group = 0; group < max_groups; ++group)
    if (in(group) != elsewhere()) result = result.with(group, dual(in(group)));
  return result;
}

namespace {

const std::string complete_first = "complete the pending sum with all_reduce or reduce_scatter first";

// The inputs of one op in one group.
struct Inputs {
  const Placements* all;
  const Role* roles;
  int count;
  int group;  // -1 stands for all other groups

  Placement operator[](int i) const { return group < 0 ? all[i].elsewhere() : all[i].in(group); }
  unsigned kinds() const {  // one bit for each placement that occurs
    unsigned bits = 0;
    for (int i = 0; i < count; ++i) bits |= 1u << static_cast<int>((*this)[i]);
    return bits;
  }
  // The first input of this role that has none of these placements, or -1.
  int other_than(std::initializer_list<Placement> these, Role role) const {
    for (int i = 0; i < count; ++i)
      if (roles[i] == role && std::find(these.begin(), these.end(), (*this)[i]) == these.end()) return i;
    return -1;
  }
  bool twice(Placement placement) const {
    int n = 0;
    for (int i = 0; i < count; ++i) n += (*this)[i] == placement;
    return n > 1;
  }
  std::string describe(int i) const {
    const Placement placement = (*this)[i];
    return "input " + std::to_string(i + 1) + ", which is " + text(placement) +
           (placement == Placement::unknown ? std::string(" (") + how_to_place + ")" : "");
  }
};

// Why the inputs of an addition cannot be parts of one pending sum, or nothing if they can.
std::string why_not_added(const Inputs& inputs) {
  const int other = inputs.other_than({Placement::partial}, Role::term);
  if (other < 0) return "";
  return inputs.describe(other) + ", would be added once per rank to a Partial one; " +
         (inputs[other] == Placement::varying ? "if it is a part of the same sum, say so with share or as_partial"
                                              : "keep_on adds it on one rank only; or " + complete_first);
}

// Why this op cannot take a Partial input, and what to do; nothing if it can.
std::string why_not_partial(Algebra algebra, const Inputs& inputs) {
  using namespace placement_letters;
  const auto is_partial = [&](int i) { return inputs[i] == P; };
  const auto because = [](const std::string& why) { return why + "; " + complete_first; };
  if (algebra == Algebra::nonlinear)
    return because("it is not linear, and what one rank holds of a Partial input is a part of a sum");
  if (const int own = inputs.other_than({R, C}, Role::data); own >= 0)
    return because(inputs.describe(own) + ", would treat each rank's part of a Partial input in its own way");
  if (algebra == Algebra::linear) return why_not_added(inputs);
  if (algebra == Algebra::linear_after_first && is_partial(0))
    return because("it is not linear in its first input, which is Partial");
  if (algebra == Algebra::linear_in_first && !is_partial(0))
    return because("it is not linear in its second input, which is Partial");
  if (inputs.twice(P)) return because("the product of two Partial inputs is not a part of their sums' product");
  const int other = inputs.other_than({P, R, C}, Role::term);
  if (other < 0) return "";
  return because(inputs.describe(other) + ", would multiply each rank's part of a Partial input by something else");
}

Placement combine(const Op& op, const Inputs& inputs) {
  if (op.algebra == Algebra::own) return inputs.count > 0 ? inputs[0] : Placement::unknown;
  const unsigned kinds = inputs.kinds();
  const auto has = [&](Placement placement) { return kinds >> static_cast<int>(placement) & 1; };
  const bool known = inputs.group >= 0;
  if (has(Placement::invariant)) {
    const auto equal = {Placement::invariant, Placement::constant};
    const int other = std::max(inputs.other_than(equal, Role::term), inputs.other_than(equal, Role::data));
    if (other < 0) return Placement::invariant;
    if (!known) return Placement::unknown;
    fail({op.name, ": ", inputs.describe(other),
          ", meets an Invariant one, whose gradients must be equal on all ranks; vary() the "
          "Invariant input first"});
  }
  if (has(Placement::partial)) {
    const std::string why = why_not_partial(op.algebra, inputs);
    if (why.empty()) return Placement::partial;
    if (!known) return Placement::unknown;
    fail({op.name, ": ", why});
  }
  if (has(Placement::varying)) return Placement::varying;
  if (has(Placement::unknown)) return Placement::unknown;
  return has(Placement::replicated) ? Placement::replicated : Placement::constant;
}

}  // namespace

// An op with more inputs than the maximum, such as concat, treats all of them alike, so one input of each placement is
// enough.
void Combination::add(Placements input, Role role) {
  if (count_ >= max_inputs / 2 && std::find(inputs_, inputs_ + count_, input) != inputs_ + count_) return;
  require(count_ < max_inputs, "placements: more than ", int{max_inputs}, " different ones meet in one op");
  inputs_[count_] = input;
  roles_[count_++] = role;
}

Placements Combination::result(const Op& op, int groups) const {
  Placements result(combine(op, Inputs{inputs_, roles_, count_, -1}));
  for (int group = 0; group < groups; ++group) {
    const Placement placement = combine(op, Inputs{inputs_, roles_, count_, group});
    if (placement != result.elsewhere()) result = result.with(group, placement);
  }
  return result;
}

}  // namespace weft
