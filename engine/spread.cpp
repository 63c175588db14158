#include "engine/spread.h"

#include <algorithm>

#include "engine/op.h"

namespace weft {

std::string text(Spread spread) {
  constexpr const char* names[] = {"unknown", "Replicated", "Invariant", "Varying", "Partial"};
  return names[static_cast<int>(spread)];
}

Spread dual(Spread spread) {
  switch (spread) {
    case Spread::replicated: return Spread::partial;
    case Spread::partial: return Spread::replicated;
    default: return spread;
  }
}

Spreads Spreads::duals() const {
  Spreads result(dual(elsewhere()));
  for (int group = 0; group < max_groups; ++group) result = result.with(group, dual(in(group)));
  return result;
}

namespace {

// The inputs of one op in one group.
struct Inputs {
  const Spreads* all;
  int count;
  int group;  // or -1: everywhere else

  Spread operator[](int i) const { return group < 0 ? all[i].elsewhere() : all[i].in(group); }
  unsigned kinds() const {  // a bit for each spread that occurs
    unsigned bits = 0;
    for (int i = 0; i < count; ++i) bits |= 1u << static_cast<int>((*this)[i]);
    return bits;
  }
  bool has(Spread spread) const { return kinds() >> static_cast<int>(spread) & 1; }
  // The first input that is neither of these nor unknown, or -1.
  int other_than(Spread a, Spread b) const {
    for (int i = 0; i < count; ++i)
      if ((*this)[i] != a && (*this)[i] != b && (*this)[i] != Spread::unknown) return i;
    return -1;
  }
  bool twice(Spread spread) const {
    int n = 0;
    for (int i = 0; i < count; ++i) n += (*this)[i] == spread;
    return n > 1;
  }
  std::string named(int i) const { return "input " + std::to_string(i + 1) + ", which is " + text((*this)[i]); }
};

// Why a pending sum cannot go through this op, or nothing if it can.
std::string why_not_partial(Algebra algebra, const Inputs& inputs) {
  const auto is_partial = [&](int i) { return inputs[i] == Spread::partial; };
  if (algebra == Algebra::nonlinear)
    return "it is not linear, and what one rank holds of a Partial input is a part of a sum";
  if (algebra == Algebra::linear) {
    const int other = inputs.other_than(Spread::partial, Spread::partial);
    return other < 0 ? "" : inputs.named(other) + ", would be added once per rank to a Partial one";
  }
  if (algebra == Algebra::linear_after_first && is_partial(0))
    return "it is not linear in its first input, which is Partial";
  if (algebra == Algebra::linear_in_first && !is_partial(0))
    return "it is not linear in its second input, which is Partial";
  if (inputs.twice(Spread::partial)) return "the product of two Partial inputs is not a part of their sums' product";
  const int other = inputs.other_than(Spread::partial, Spread::replicated);
  return other < 0 ? ""
                   : inputs.named(other) + ", would multiply each rank's part of a Partial input by something else";
}

Spread combine(const Op& op, const Inputs& inputs) {
  if (op.algebra == Algebra::own) return inputs.count > 0 ? inputs[0] : Spread::unknown;
  const bool known = inputs.group >= 0;
  if (inputs.has(Spread::invariant)) {
    const int other = inputs.other_than(Spread::invariant, Spread::invariant);
    if (other < 0) return Spread::invariant;
    if (!known) return Spread::unknown;
    fail({op.name, ": ", inputs.named(other),
          ", meets an Invariant one, whose gradients must be equal on all ranks; vary() the "
          "Invariant input first"});
  }
  if (inputs.has(Spread::partial)) {
    const std::string why = why_not_partial(op.algebra, inputs);
    if (why.empty()) return Spread::partial;
    if (!known) return Spread::unknown;
    fail({op.name, ": ", why, "; complete the pending sum with all_reduce or reduce_scatter first"});
  }
  if (inputs.has(Spread::varying)) return Spread::varying;
  return inputs.has(Spread::replicated) ? Spread::replicated : Spread::unknown;
}

}  // namespace

// An op of more inputs than are kept, such as concat, treats them all alike, so one of each spread is enough.
void Combination::add(Spreads input) {
  if (count_ >= kept / 2 && std::find(inputs_, inputs_ + count_, input) != inputs_ + count_) return;
  require(count_ < kept, "spreads: more than ", int{kept}, " different ones meet in one op");
  inputs_[count_++] = input;
}

Spreads Combination::result(const Op& op, int groups) const {
  Spreads result(combine(op, Inputs{inputs_, count_, -1}));
  for (int group = 0; group < groups; ++group) {
    const Spread spread = combine(op, Inputs{inputs_, count_, group});
    if (spread != result.elsewhere()) result = result.with(group, spread);
  }
  return result;
}

}  // namespace weft
