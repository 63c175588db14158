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
      conversion("vary", as_it_is, CODE(vary(c.x[0], c.group))),
      conversion("all_reduce_equal", summed_over_group, CODE(all_reduce_equal(c.x[0], c.group))),
      conversion("all_gather_equal", gathered, CODE(all_gather_equal(c.x[0], c.rows(), c.group))),
      conversion("own_rows", divided_in_group, CODE(own_rows(c.x[0], c.split(), c.group))),
      conversion("padded_rows", gathered, CODE(padded_rows(c.x[0], c.rows(), c.group))),
      conversion("keep_on", as_it_is, CODE(keep_on(c.x[0], c.root(), c.group))),
      conversion("as_invariant", as_it_is, CODE(as_invariant(c.x[0], c.group))),
      conversion("as_partial", equal_as_it_is, CODE(as_partial(c.x[0], c.group))),
      conversion("as_varying", as_it_is, CODE(as_varying(c.x[0], c.group)))};
  StepKind share_kind = conversion("share", shared, CODE(fit(share(sum(c.x[0]), 3, c.group), {1, 3})));
  share_kind.feature = Feature::share;
  kinds.push_back(std::move(share_kind));
  return kinds;
}

}  // namespace weft::random_programs
