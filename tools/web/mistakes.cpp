// SPDX-License-Identifier: Apache-2.0
#include "tools/web/mistakes.h"

#include <map>
#include <tuple>

#include "weft/engine/tensor/error.h"

namespace weft::web {
namespace {

// The adjoint's blocks for which keep(reader, source) holds.
template <class F> Backward adjoint_where(const Blocks& forward, const F& keep) {
  Backward backward{forward.adjoint()};
  for (int r = 0; r < forward.ranks(); ++r)
    for (int s = 0; s < forward.ranks(); ++s)
      if (!keep(r, s)) backward.blocks.at(r, s) = {};
  return backward;
}

// Each rank reads what the adjoint lets rank of(r) read, as far as that has rows for its input.
template <class F> Backward adjoint_of_rank(const Blocks& forward, const F& of) {
  const Blocks adjoint = forward.adjoint();
  Backward backward{adjoint};
  for (int r = 0; r < forward.ranks(); ++r)
    for (int s = 0; s < forward.ranks(); ++s) {
      Portion portion = adjoint.at(of(r), s);
      portion.count = std::clamp<int64_t>(forward.exposed(r) - portion.to, 0, portion.count);
      backward.blocks.at(r, s) = portion.count > 0 ? portion : Portion{};
    }
  return backward;
}

Backward times(const Blocks& forward, double factor) { return {forward.adjoint(), factor}; }

// The forward again, where the rows of its result fit.
Backward not_turned(const Blocks& forward) {
  Backward backward{forward.adjoint()};
  for (int r = 0; r < forward.ranks(); ++r)
    for (int s = 0; s < forward.ranks(); ++s) {
      const Portion portion = forward.at(r, s);
      const bool fits = portion.from + portion.count <= backward.blocks.exposed(s) &&
                        portion.to + portion.count <= forward.exposed(r);
      backward.blocks.at(r, s) = fits ? portion : Portion{};
    }
  return backward;
}

// Each rank reads the rows of slot s of rank s.
Backward own_slices(const Blocks& forward) {
  const Blocks adjoint = forward.adjoint();
  Backward backward{adjoint};
  for (int r = 0; r < forward.ranks(); ++r)
    for (int s = 0; s < forward.ranks(); ++s) {
      Portion portion = adjoint.at(s, s);
      portion.count = std::clamp<int64_t>(forward.exposed(r) - portion.to, 0, portion.count);
      backward.blocks.at(r, s) = portion.count > 0 ? portion : Portion{};
    }
  return backward;
}

using Weights = std::map<std::tuple<int, int64_t, int, int64_t>, double>;
Weights weights(const Backward& backward) {
  Weights weights;
  for (int r = 0; r < backward.blocks.ranks(); ++r)
    for (int s = 0; s < backward.blocks.ranks(); ++s) {
      const auto [from, count, to] = backward.blocks.at(r, s);
      for (int64_t i = 0; i < count && backward.factor != 0; ++i) weights[{r, to + i, s, from + i}] = backward.factor;
    }
  return weights;
}

}  // namespace

const std::vector<Mistake>& mistakes() {
  using Forward = const Blocks&;
  static const std::vector<Mistake> all = {
      {"none", "S0", "This is the adjoint.", [](Forward f) { return times(f, 1); }},
      {"own slot", "S2",
       "Each rank keeps what its own loss says, and what the other ranks' losses say of its values is lost.",
       [](Forward f) { return adjoint_where(f, [](int r, int s) { return r == s; }); }},
      {"nothing", "S1", "Nothing comes back: the collective is a constant to the tape.",
       [](Forward f) { return times(f, 0); }},
      {"mean", "S6", "The terms are averaged over ranks. The adjoint is their sum.",
       [](Forward f) { return times(f, 1.0 / f.ranks()); }},
      {"reduced twice", "S7", "The sum is taken twice, so everything counts once more for each rank.",
       [](Forward f) { return times(f, f.ranks()); }},
      {"counted twice", "", "Everything counts twice, as when a hook fires for each of two losses.",
       [](Forward f) { return times(f, 2); }},
      {"own slot times W", "S4", "The own slot is multiplied by the number of ranks, as if all losses were alike.",
       [](Forward f) {
         Backward backward = adjoint_where(f, [](int r, int s) { return r == s; });
         backward.factor = f.ranks();
         return backward;
       }},
      {"sum of own slots", "S5", "Ranks add up their own slots. So each gets gradients of other ranks' values.",
       own_slices},
      {"without its own", "", "What a rank's own loss says of its values is missing.",
       [](Forward f) { return adjoint_where(f, [](int r, int s) { return r != s; }); }},
      {"rank 0 only", "", "Only what the loss of rank 0 says comes back.",
       [](Forward f) { return adjoint_where(f, [](int, int s) { return s == 0; }); }},
      {"last rank missing", "S24", "What the loss of the last rank says is missing, as when it is read too early.",
       [](Forward f) { return adjoint_where(f, [&](int, int s) { return s + 1 < f.ranks(); }); }},
      {"ranks before only", "", "A rank gets what losses of ranks up to its own say. The sum ends too early.",
       [](Forward f) { return adjoint_where(f, [](int r, int s) { return s <= r; }); }},
      {"ranks after only", "", "A rank gets what losses of ranks from its own on say. The sum begins too late.",
       [](Forward f) { return adjoint_where(f, [](int r, int s) { return s >= r; }); }},
      {"off by a rank", "", "Each rank gets the gradient of the next rank's values.",
       [](Forward f) { return adjoint_of_rank(f, [&](int r) { return (r + 1) % f.ranks(); }); }},
      {"ranks reversed", "", "The ranks' gradients come back in the reverse order.",
       [](Forward f) { return adjoint_of_rank(f, [&](int r) { return f.ranks() - 1 - r; }); }},
      {"not turned", "", "The collective itself, not its transpose: data go on in the same direction.", not_turned},
  };
  return all;
}

const Mistake& mistake_named(const std::string& name) {
  for (const Mistake& mistake : mistakes())
    if (name == mistake.name) return mistake;
  throw Error("there is no mistake '" + name + "'");
}

bool equal_for_all(const Backward& a, const Backward& b) { return weights(a) == weights(b); }

}  // namespace weft::web
