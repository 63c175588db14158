// SPDX-License-Identifier: Apache-2.0
// Parameters that a trainer holds, alone and in units.
#include "tests/random_programs/step_kinds.h"

namespace weft::random_programs {

namespace {

std::optional<Layout> as_a_layer(const Situation& s) { return Layout{{s.rows()}, s.rows(), 2}; }

// The groups of a divided layer are the rows of a grid.
std::optional<Layout> over_a_grid(const Situation& s) {
  for (int r = 0; r < s.ranks(); ++r)
    if (s.partition().members(r).size() != s.partition().members(0).size()) return {};
  return as_a_layer(s);
}

StepKind trained(const char* name, int inputs, layouts::Of lay_out, std::function<Var(const Call&)> run,
                 const char* text) {
  return {.name = name,
          .feature = Feature::training,
          .inputs = inputs,
          .lay_out = std::move(lay_out),
          .run = std::move(run),
          .text = text};
}

}  // namespace

std::vector<StepKind> training_kinds() {
  const auto matrix = [](const Situation& s) { return std::optional(Layout{{}, s.everywhere(columns), 1}); };
  std::vector<StepKind> kinds = {
      trained("trained parameter", 0, matrix, CODE(c.training.watch(c.tape, c.dice()))),
      trained("trained layer", 1, as_a_layer, CODE(c.training.apply(c.x[0], c.dice()))),
      trained("trained divided layer", 1, over_a_grid, CODE(c.training.apply(c.x[0], c.dice())))};
  kinds[0].trained = Training::Use::alone;
  kinds[1].trained = Training::Use::layer;
  kinds[2].trained = Training::Use::divided_layer;
  return kinds;
}

}  // namespace weft::random_programs
