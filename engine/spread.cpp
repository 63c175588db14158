#include "engine/spread.h"

#include <algorithm>

#include "engine/op.h"

namespace weft {

std::string text(Spread spread) {
  constexpr const char* names[] = {"unsaid", "Same", "Replicated", "Invariant", "Varying", "Partial"};
  return names[static_cast<int>(spread)];
}

Spread dual(Spread spread) {
  switch (spread) {
    case Spread::replicated: return Spread::partial;
    case Spread::partial: return Spread::replicated;
    case Spread::same: return Spread::unsaid;
    default: return spread;
  }
}

Spreads Spreads::duals() const {
  Spreads result(dual(elsewhere()));
  for (int group = 0; group < max_groups; ++group)
    if (in(group) != elsewhere()) result = result.with(group, dual(in(group)));
  return result;
}

namespace {

const std::string complete_first = "complete the pending sum with all_reduce or reduce_scatter first";

// The inputs of one op in one group.
struct Inputs {
  const Spreads* all;
  const Role* roles;
  int count;
  int group;  // or -1: everywhere else

  Spread operator[](int i) const { return group < 0 ? all[i].elsewhere() : all[i].in(group); }
  unsigned kinds() const {  // a bit for each spread that occurs
    unsigned bits = 0;
    for (int i = 0; i < count; ++i) bits |= 1u << static_cast<int>((*this)[i]);
    return bits;
  }
  // The first of this role that is none of these spreads, or -1.
  int other_than(std::initializer_list<Spread> these, Role role) const {
    for (int i = 0; i < count; ++i)
      if (roles[i] == role && std::find(these.begin(), these.end(), (*this)[i]) == these.end()) return i;
    return -1;
  }
  bool twice(Spread spread) const {
    int n = 0;
    for (int i = 0; i < count; ++i) n += (*this)[i] == spread;
    return n > 1;
  }
  std::string named(int i) const {
    const Spread spread = (*this)[i];
    return "input " + std::to_string(i + 1) + ", which is " + text(spread) +
           (spread == Spread::unsaid ? std::string(" (") + how_to_say + ")" : "");
  }
};

// What is added to a pending sum must be a part of it, too.
std::string why_not_added(const Inputs& inputs) {
  const int other = inputs.other_than({Spread::partial}, Role::term);
  if (other < 0) return "";
  return inputs.named(other) + ", would be added once per rank to a Partial one; " +
         (inputs[other] == Spread::varying ? "if it is a part of the same sum, say so with share or as_partial"
                                           : "keep_on adds it on one rank only; or " + complete_first);
}

// Why a pending sum cannot go through this op and what to do, or nothing if it can.
std::string why_not_partial(Algebra algebra, const Inputs& inputs) {
  using namespace spread_letters;
  const auto is_partial = [&](int i) { return inputs[i] == P; };
  const auto because = [](const std::string& why) { return why + "; " + complete_first; };
  if (algebra == Algebra::nonlinear)
    return because("it is not linear, and what one rank holds of a Partial input is a part of a sum");
  if (const int own = inputs.other_than({R, S}, Role::data); own >= 0)
    return because(inputs.named(own) + ", would treat each rank's part of a Partial input in its own way");
  if (algebra == Algebra::linear) return why_not_added(inputs);
  if (algebra == Algebra::linear_after_first && is_partial(0))
    return because("it is not linear in its first input, which is Partial");
  if (algebra == Algebra::linear_in_first && !is_partial(0))
    return because("it is not linear in its second input, which is Partial");
  if (inputs.twice(P)) return because("the product of two Partial inputs is not a part of their sums' product");
  const int other = inputs.other_than({P, R, S}, Role::term);
  if (other < 0) return "";
  return because(inputs.named(other) + ", would multiply each rank's part of a Partial input by something else");
}

Spread combine(const Op& op, const Inputs& inputs) {
  if (op.algebra == Algebra::own) return inputs.count > 0 ? inputs[0] : Spread::unsaid;
  const unsigned kinds = inputs.kinds();
  const auto has = [&](Spread spread) { return kinds >> static_cast<int>(spread) & 1; };
  const bool known = inputs.group >= 0;
  if (has(Spread::invariant)) {
    const auto equal = {Spread::invariant, Spread::same};
    const int other = std::max(inputs.other_than(equal, Role::term), inputs.other_than(equal, Role::data));
    if (other < 0) return Spread::invariant;
    if (!known) return Spread::unsaid;
    fail({op.name, ": ", inputs.named(other),
          ", meets an Invariant one, whose gradients must be equal on all ranks; vary() the "
          "Invariant input first"});
  }
  if (has(Spread::partial)) {
    const std::string why = why_not_partial(op.algebra, inputs);
    if (why.empty()) return Spread::partial;
    if (!known) return Spread::unsaid;
    fail({op.name, ": ", why});
  }
  if (has(Spread::varying)) return Spread::varying;
  if (has(Spread::unsaid)) return Spread::unsaid;
  return has(Spread::replicated) ? Spread::replicated : Spread::same;
}

}  // namespace

// An op of more inputs than are kept, such as concat, treats them all alike, so one of each spread is enough.
void Combination::add(Spreads input, Role role) {
  if (count_ >= kept / 2 && std::find(inputs_, inputs_ + count_, input) != inputs_ + count_) return;
  require(count_ < kept, "spreads: more than ", int{kept}, " different ones meet in one op");
  inputs_[count_] = input;
  roles_[count_++] = role;
}

Spreads Combination::result(const Op& op, int groups) const {
  Spreads result(combine(op, Inputs{inputs_, roles_, count_, -1}));
  for (int group = 0; group < groups; ++group) {
    const Spread spread = combine(op, Inputs{inputs_, roles_, count_, group});
    if (spread != result.elsewhere()) result = result.with(group, spread);
  }
  return result;
}

}  // namespace weft
