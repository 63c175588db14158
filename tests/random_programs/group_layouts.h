// SPDX-License-Identifier: Apache-2.0
#pragma once
// The rows of the inputs and results of collectives over the groups of a partition.
#include "tests/random_programs/step_kinds.h"

namespace weft::random_programs::layouts {

// Equal rows on all ranks.
std::optional<Layout> summed_over_group(const Situation& s);
std::optional<Layout> multiplied_over_group(const Situation& s);
std::optional<Layout> around_a_ring(const Situation& s);  // of two ranks or more

// The rows of a joint tensor divided among the ranks of a group, in equal parts or in random ones.
std::optional<Layout> evenly_divided(const Situation& s);
std::optional<Layout> divided_in_group(const Situation& s);

// The rows of all ranks of a group on each, or on the root.
std::optional<Layout> gathered_evenly(const Situation& s);
std::optional<Layout> gathered(const Situation& s);
std::optional<Layout> gathered_evenly_on_root(const Situation& s);
std::optional<Layout> gathered_on_root(const Situation& s);

std::optional<Layout> exchanged_evenly(const Situation& s);
std::optional<Layout> exchanged(const Situation& s);
std::optional<Layout> random_portions(const Situation& s);

}  // namespace weft::random_programs::layouts
