// SPDX-License-Identifier: Apache-2.0
#include "tests/random_programs/group_layouts.h"

#include <cmath>
#include <numeric>

namespace weft::random_programs::layouts {

namespace {

size_t index(int rank) { return static_cast<size_t>(rank); }
int size_of_group(const Situation& s, int rank) { return static_cast<int>(s.partition().members(rank).size()); }

// Calls `rows_of(members, position)` for each rank.
template <class F> Extents in_groups(const Situation& s, F rows_of) {
  Extents rows;
  for (int r = 0; r < s.ranks(); ++r) rows.push_back(rows_of(s.partition().members(r), s.partition().position(r)));
  return rows;
}
Rows of_members(const std::vector<int>& members, const Extents& rows) {
  Rows result;
  for (const int member : members) result.push_back(rows[index(member)]);
  return result;
}

// A number of rows that every group can divide equally, unless it is large.
std::optional<int64_t> divisible_rows(const Situation& s) {
  int64_t multiple = 1;
  for (int r = 0; r < s.ranks(); ++r) multiple = std::lcm(multiple, int64_t{size_of_group(s, r)});
  if (multiple > 8) return {};
  return multiple;
}

bool is_root(const Situation& s, const std::vector<int>& members, int position) {
  return position == static_cast<int>(s.step.dice % members.size());
}
Extents sums(const Situation& s, const Extents& rows) {
  return in_groups(s, [&](const auto& members, int) { return total_rows(of_members(members, rows)); });
}
Extents sums_on_root(const Situation& s, const Extents& rows) {
  return in_groups(s, [&](const auto& members, int position) {
    return is_root(s, members, position) ? total_rows(of_members(members, rows)) : 0;
  });
}

}  // namespace

std::optional<Layout> summed_over_group(const Situation& s) {
  std::optional<Layout> layout = equal(s);
  layout->bound *= s.ranks();
  return layout;
}
std::optional<Layout> multiplied_over_group(const Situation& s) {
  std::optional<Layout> layout = equal(s);
  layout->bound = std::pow(layout->bound, s.ranks());
  return layout;
}
std::optional<Layout> around_a_ring(const Situation& s) {
  for (int r = 0; r < s.ranks(); ++r)
    if (size_of_group(s, r) == 1) return {};
  return equal(s);
}

std::optional<Layout> evenly_divided(const Situation& s) {
  const std::optional<int64_t> rows = divisible_rows(s);
  if (!rows) return {};
  return Layout{{s.everywhere(*rows)},
                in_groups(s, [&](const auto& members, int) { return *rows / static_cast<int64_t>(members.size()); }),
                s.bound() * s.ranks()};
}
std::optional<Layout> divided_in_group(const Situation& s) {
  const int64_t total = 2 + some_rows(s);
  const auto part = [&](const auto& members, int position) {
    return random_split(total, static_cast<int>(members.size()), s.step.dice)[index(position)];
  };
  return Layout{{s.everywhere(total)}, in_groups(s, part), s.bound() * s.ranks()};
}

std::optional<Layout> gathered_evenly(const Situation& s) {
  const Extents rows = s.everywhere(some_rows(s));
  return Layout{{rows}, sums(s, rows), s.bound()};
}
std::optional<Layout> gathered(const Situation& s) { return Layout{{s.rows()}, sums(s, s.rows()), s.bound()}; }
std::optional<Layout> gathered_evenly_on_root(const Situation& s) {
  const Extents rows = s.everywhere(some_rows(s));
  return Layout{{rows}, sums_on_root(s, rows), s.bound()};
}
std::optional<Layout> gathered_on_root(const Situation& s) {
  return Layout{{s.rows()}, sums_on_root(s, s.rows()), s.bound()};
}

std::optional<Layout> exchanged_evenly(const Situation& s) {
  const std::optional<int64_t> rows = divisible_rows(s);
  if (!rows) return {};
  return Layout{{s.everywhere(*rows)}, s.everywhere(*rows), s.bound()};
}
std::optional<Layout> exchanged(const Situation& s) {
  const auto received = [&](const auto& members, int position) {
    int64_t rows = 0;
    for (const Rows& sent : random_counts(of_members(members, s.rows()), s.step.dice)) rows += sent[index(position)];
    return rows;
  };
  return Layout{{s.rows()}, in_groups(s, received), s.bound()};
}
std::optional<Layout> random_portions(const Situation& s) {
  const auto received = [&](const auto& members, int position) {
    return RandomPortions::draw(of_members(members, s.rows()), s.step.dice).result_rows[index(position)];
  };
  return Layout{{s.rows()}, in_groups(s, received), s.bound() * s.ranks()};
}

}  // namespace weft::random_programs::layouts
