// SPDX-License-Identifier: Apache-2.0
// Every conversion of placement_conversions.h and group_placement.h, and shares.
#include "tests/random_programs/group_layouts.h"
#include "tests/random_programs/step_kinds.h"
#include "tests/random_programs/values.h"
#include "weft/collectives/placement_conversions.h"
#include "weft/collectives/share.h"
#include "weft/engine/ops/reduce.h"

namespace weft::random_programs {

namespace {

using namespace layouts;

StepKind conversion(const char* name, Of lay_out, std::function<Var(const Call&)> run, const char* text) {
  return {.name = name,
          .feature = Feature::conversion,
          .inputs = 1,
          .lay_out = std::move(lay_out),
          .run = std::move(run),
          .text = text};
}

// Terms of one sum have one shape.
std::optional<Layout> equal_as_it_is(const Situation& s) { return are_equal(s.rows()) ? as_it_is(s) : equal(s); }

std::optional<Layout> shared(const Situation& s) {
  int64_t longest = 1;
  for (const int64_t rows : s.rows()) longest = std::max(longest, rows);
  return Layout{{s.rows()}, s.everywhere(1), static_cast<double>(longest) * s.bound()};
}

}  // namespace

std::vector<StepKind> conversion_kinds() {
  std::vector<StepKind> kinds = {
      conversion(
          "vary", as_it_is, [](const Call& c) { return vary(c.x[0], c.group); }, "vary({0}, {group})"),
      conversion(
          "all_reduce_equal", summed_over_group, [](const Call& c) { return all_reduce_equal(c.x[0], c.group); },
          "all_reduce_equal({0}, {group})"),
      conversion(
          "all_gather_equal", gathered, [](const Call& c) { return all_gather_equal(c.x[0], c.rows(), c.group); },
          "all_gather_equal({0}, {rows}, {group})"),
      conversion(
          "own_rows", divided_in_group, [](const Call& c) { return own_rows(c.x[0], c.split(), c.group); },
          "own_rows({0}, {split}, {group})"),
      conversion(
          "padded_rows", gathered, [](const Call& c) { return padded_rows(c.x[0], c.rows(), c.group); },
          "padded_rows({0}, {rows}, {group})"),
      conversion(
          "keep_on", as_it_is, [](const Call& c) { return keep_on(c.x[0], c.root(), c.group); },
          "keep_on({0}, {root}, {group})"),
      conversion(
          "as_invariant", as_it_is, [](const Call& c) { return as_invariant(c.x[0], c.group); },
          "as_invariant({0}, {group})"),
      conversion(
          "as_partial", equal_as_it_is, [](const Call& c) { return as_partial(c.x[0], c.group); },
          "as_partial({0}, {group})"),
      conversion(
          "as_varying", as_it_is, [](const Call& c) { return as_varying(c.x[0], c.group); },
          "as_varying({0}, {group})")};
  StepKind share_kind = conversion(
      "share", shared,
      [](const Call& c) {
        return fit(share(sum(c.x[0]), 3, c.group), {1, columns});
      },
      "fit(share(sum({0}), 3, {group}), {1, 3})");
  share_kind.feature = Feature::share;
  kinds.push_back(std::move(share_kind));
  return kinds;
}

}  // namespace weft::random_programs
