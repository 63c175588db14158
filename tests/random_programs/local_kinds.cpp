// SPDX-License-Identifier: Apache-2.0
// Leaves, constants, and operations that do not communicate.
#include <algorithm>
#include <cmath>

#include "tests/random_programs/registry.h"
#include "tests/random_programs/step_kinds.h"
#include "tests/random_programs/values.h"
#include "weft/collectives/placement_conversions.h"
#include "weft/engine/ops/matmul.h"

namespace weft::random_programs {

namespace layouts {

int64_t some_rows(const Situation& s) { return 1 + s.step.dice % 3; }

std::optional<Layout> as_it_is(const Situation& s) { return Layout{{s.rows()}, s.rows(), s.bound()}; }

std::optional<Layout> equal(const Situation& s) {
  const Extents rows = s.everywhere(some_rows(s));
  double bound = 1;
  for (size_t i = 0; i < s.inputs.size(); ++i) bound = std::max(bound, s.bound(i));
  return Layout{std::vector<Extents>(s.inputs.size(), rows), rows, bound};
}

std::optional<Layout> pairwise(const Situation& s) {
  const Extents& rows = may_fit(s.rows(1), s.rows(0)) ? s.rows(0) : s.rows(1);
  return Layout{{rows, rows}, rows, s.bound(0) + s.bound(1)};
}

}  // namespace layouts

namespace {

using namespace layouts;

std::optional<Layout> leaf_equal(const Situation& s) { return Layout{{}, s.everywhere(some_rows(s)), 1}; }
std::optional<Layout> leaf_uneven(const Situation& s) {
  Extents rows;
  for (int r = 0; r < s.ranks(); ++r)
    rows.push_back(static_cast<int64_t>((s.step.dice / 4 + 2 * static_cast<uint32_t>(r)) % 4));
  return Layout{{}, rows, 1};
}

int each_its_own(const Program&, const Step&, int rank) { return rank; }
int all_the_same(const Program&, const Step&, int) { return 0; }
int one_for_each_group(const Program& program, const Step& step, int rank) {
  return program.partition(step).color[static_cast<size_t>(rank)];
}

using Whose = int (*)(const Program&, const Step&, int rank);
StepKind data_kind(const char* name, Feature feature, Of lay_out, Whose whose, std::function<Var(const Call&)> run,
                   const char* text) {
  return {.name = name,
          .feature = feature,
          .inputs = 0,
          .lay_out = std::move(lay_out),
          .run = std::move(run),
          .text = text,
          .whose = whose};
}

}  // namespace

std::vector<StepKind> leaf_kinds() {
  const auto leaf = Feature::leaf;
  return {data_kind("own leaf", leaf, leaf_equal, each_its_own, CODE(c.tape.watch(c.data()))),
          data_kind("own uneven leaf", leaf, leaf_uneven, each_its_own, CODE(c.tape.watch(c.data()))),
          data_kind("parameter", leaf, leaf_equal, all_the_same, CODE(c.tape.watch(c.parameter()))),
          data_kind("leaf of a group", leaf, leaf_equal, one_for_each_group,
                    CODE(with_placement(c.tape.watch(c.data()), c.group, Placement::replicated)))};
}

namespace {

std::vector<StepKind> constant_kinds() {
  const auto constant = Feature::constant;
  return {data_kind("own constant", constant, leaf_equal, each_its_own, CODE(c.tape.constant(c.data()))),
          data_kind("own uneven constant", constant, leaf_uneven, each_its_own, CODE(c.tape.constant(c.data()))),
          data_kind("replicated constant", constant, leaf_equal, all_the_same, CODE(replicated_constant(c.data()))),
          data_kind("plain equal tensor", constant, leaf_equal, all_the_same, CODE(Var(c.data()))),
          data_kind("plain own tensor", constant, leaf_equal, each_its_own, CODE(Var(c.data()))),
          data_kind("product stated to be equal", constant, leaf_equal, all_the_same,
                    CODE(as_replicated(c.tape.watch(c.parameter()) * c.data(), c.group)))};
}

StepKind local(const char* name, int inputs, Of lay_out, std::function<Var(const Call&)> run, const char* text) {
  return {.name = name,
          .feature = Feature::local,
          .inputs = inputs,
          .lay_out = std::move(lay_out),
          .run = std::move(run),
          .text = text};
}
std::optional<Layout> bounded(const Situation& s) { return Layout{{s.rows()}, s.rows(), 1}; }
std::optional<Layout> product(const Situation& s) {
  std::optional<Layout> layout = pairwise(s);
  layout->bound = s.bound(0) * s.bound(1);
  return layout;
}
std::optional<Layout> squared(const Situation& s) { return Layout{{s.rows()}, s.rows(), s.bound() * s.bound()}; }
std::optional<Layout> by_matrix(const Situation& s) {
  if (!may_fit(s.rows(1), s.everywhere(columns))) return {};
  return Layout{{s.rows(), s.everywhere(columns)}, s.rows(), 3 * s.bound(0) * s.bound(1)};
}
std::optional<Layout> joined(const Situation& s) {
  Extents rows = s.rows(0);
  for (size_t r = 0; r < rows.size(); ++r) rows[r] += s.rows(1)[r];
  return Layout{{s.rows(0), s.rows(1)}, rows, std::max(s.bound(0), s.bound(1))};
}
std::optional<Layout> summed(const Situation& s) {
  const int64_t longest = *std::max_element(s.rows().begin(), s.rows().end());
  return Layout{{s.rows()}, s.everywhere(1), static_cast<double>(longest) * s.bound()};
}

}  // namespace

std::vector<StepKind> local_kinds() {
  std::vector<StepKind> kinds = constant_kinds();
  const StepKind local_ones[] = {local("add", 2, pairwise, CODE(c.x[0] + c.x[1])),
                                 local("sub", 2, pairwise, CODE(c.x[0] - c.x[1])),
                                 local("mul", 2, product, CODE(c.x[0] * c.x[1])),
                                 local("square", 1, squared, CODE(square(c.x[0]))),
                                 local("scale", 1, as_it_is, CODE(c.x[0] * 0.75)),
                                 local("shift", 1, as_it_is, CODE(c.x[0] + 0.25)),
                                 local("sin", 1, bounded, CODE(sin(c.x[0]))),
                                 local("tanh", 1, bounded, CODE(tanh(c.x[0]))),
                                 local("matmul", 2, by_matrix, CODE(matmul(c.x[0], c.x[1]))),
                                 local("concat", 2, joined, CODE(concat({c.x[0], c.x[1]}, 0))),
                                 local("sum of rows", 1, summed, CODE(reshape(sum(c.x[0], 0), {1, 3})))};
  kinds.insert(kinds.end(), std::begin(local_ones), std::end(local_ones));
  return kinds;
}

}  // namespace weft::random_programs
