// SPDX-License-Identifier: Apache-2.0
#include "tests/random_programs/program.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "tests/random_programs/step_kinds.h"

namespace weft::random_programs {

std::vector<int> Partition::members(int rank) const {
  std::vector<int> all;
  for (size_t r = 0; r < color.size(); ++r)
    if (color[r] == color[static_cast<size_t>(rank)]) all.push_back(static_cast<int>(r));
  if (reversed) std::reverse(all.begin(), all.end());
  return all;
}

int Partition::position(int rank) const {
  const std::vector<int> all = members(rank);
  return static_cast<int>(std::find(all.begin(), all.end(), rank) - all.begin());
}

bool Program::has_own_weights(const Term& term, const Layout& layout) const {
  return term.weights == Weights::own || !are_equal(layout.out);
}

bool are_equal(const Extents& rows) {
  return std::adjacent_find(rows.begin(), rows.end(), std::not_equal_to<>()) == rows.end();
}

bool may_fit(const Extents& from, const Extents& to) {
  for (size_t r = 0; r < from.size(); ++r)
    for (size_t s = 0; s < r; ++s)
      if (from[r] == from[s] && to[r] != to[s]) return false;
  return true;
}

namespace {

constexpr double largest = 4;  // elements beyond this are scaled, so that differences stay exact
constexpr int64_t most_rows = 24;

bool suits(const Layout& layout, const std::vector<const Layout*>& inputs) {
  for (size_t i = 0; i < inputs.size(); ++i)
    if (!may_fit(inputs[i]->out, layout.in[i])) return false;
  return *std::max_element(layout.out.begin(), layout.out.end()) <= most_rows;
}

}  // namespace

Layouts lay_out(const Program& program) {
  Layouts result;
  for (size_t i = 0; i < program.steps.size(); ++i) {
    const Step& step = program.steps[i];
    std::vector<const Layout*> inputs;
    for (const int input : step.inputs) inputs.push_back(&result.of_steps[static_cast<size_t>(input)]);
    std::optional<Layout> layout = step_kinds()[static_cast<size_t>(step.kind)].lay_out({program, step, inputs});
    if (!layout || !suits(*layout, inputs)) {
      result.misfit = static_cast<int>(i);
      return result;
    }
    for (const Layout* input : inputs) layout->input_bound = std::max(layout->input_bound, input->bound);
    if (layout->bound > largest) layout->factor = std::exp2(-std::ceil(std::log2(layout->bound)));
    layout->bound *= layout->factor;
    result.of_steps.push_back(std::move(*layout));
  }
  return result;
}

namespace {

// Removes a step and, if it has no input to take its place, all that depend on it.
void remove(Program& program, int gone) {
  std::vector<int> heirs(program.steps.size());  // for each old step, its new number or -1
  std::vector<Step> kept;
  for (size_t i = 0; i < program.steps.size(); ++i) {
    Step step = program.steps[i];
    bool orphan = false;
    for (int& input : step.inputs) {
      input = heirs[static_cast<size_t>(input)];
      orphan = orphan || input < 0;
    }
    if (orphan) {
      heirs[i] = -1;
    } else if (static_cast<int>(i) == gone) {
      heirs[i] = step.inputs.empty() ? -1 : step.inputs[0];
    } else {
      heirs[i] = static_cast<int>(kept.size());
      kept.push_back(std::move(step));
    }
  }
  program.steps = std::move(kept);
  std::erase_if(program.terms, [&](Term& term) { return (term.value = heirs[static_cast<size_t>(term.value)]) < 0; });
}

}  // namespace

std::vector<int> inputs_of_piece(const Program& program, size_t first, size_t last) {
  std::vector<int> inputs;
  for (size_t step = first; step < last; ++step)
    for (const int input : program.steps[step].inputs)
      if (static_cast<size_t>(input) < first && std::find(inputs.begin(), inputs.end(), input) == inputs.end())
        inputs.push_back(input);
  return inputs;
}

std::vector<int> outputs_of_piece(const Program& program, size_t first, size_t last) {
  std::vector<bool> used(program.steps.size());
  for (const Term& term : program.terms) used[static_cast<size_t>(term.value)] = true;
  for (size_t step = last; step < program.steps.size(); ++step)
    for (const int input : program.steps[step].inputs) used[static_cast<size_t>(input)] = true;
  std::vector<int> outputs;
  for (size_t step = first; step < last; ++step)
    if (used[step] || step + 1 == last) outputs.push_back(static_cast<int>(step));
  return outputs;
}

Program fitting(Program program) {
  for (int misfit = lay_out(program).misfit; misfit >= 0; misfit = lay_out(program).misfit) remove(program, misfit);
  return program;
}

Program without(const Program& program, int step) {
  Program rest = program;
  remove(rest, step);
  return fitting(std::move(rest));
}

Program without_unused(const Program& program) {
  std::vector<bool> used(program.steps.size());
  for (const Term& term : program.terms) used[static_cast<size_t>(term.value)] = true;
  for (size_t i = program.steps.size(); i-- > 0;)
    if (used[i])
      for (const int input : program.steps[i].inputs) used[static_cast<size_t>(input)] = true;
  Program result = program;
  for (size_t i = program.steps.size(); i-- > 0;)
    if (!used[i]) remove(result, static_cast<int>(i));
  return result;
}

}  // namespace weft::random_programs
