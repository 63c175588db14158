// SPDX-License-Identifier: Apache-2.0
// Parameters that a trainer holds, alone and in units.
#include "tests/random_programs/step_kinds.h"
#include "tests/random_programs/training.h"

namespace weft::random_programs {

std::vector<StepKind> training_kinds() {
  return {{.name = "trained parameter",
           .feature = Feature::training,
           .inputs = 0,
           .lay_out =
               [](const Situation& s) {
                 return std::optional(Layout{{}, s.everywhere(columns), 1});
               },
           .run = [](const Call& c) { return c.training.watch(c.tape, c.step.dice); },
           .text = "training.watch(tape, {dice})"},
          {.name = "trained layer",
           .feature = Feature::training,
           .inputs = 1,
           .lay_out =
               [](const Situation& s) {
                 return std::optional(Layout{{s.rows()}, s.rows(), 1});
               },
           .run = [](const Call& c) { return c.training.apply(c.x[0], c.step.dice); },
           .text = "training.apply({0}, {dice})"}};
}

}  // namespace weft::random_programs
