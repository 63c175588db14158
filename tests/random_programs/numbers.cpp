// SPDX-License-Identifier: Apache-2.0
#include "tests/random_programs/numbers.h"

#include <algorithm>

namespace weft::random_programs {

Rows random_split(int64_t total, int n, uint64_t dice) {
  Dice cuts(dice);
  Rows rows(static_cast<size_t>(n));
  for (int64_t i = 0; i < total; ++i) ++rows[static_cast<size_t>(cuts.below(n))];
  return rows;
}

Sources random_sources(int n, uint64_t dice) {
  Dice choices(dice);
  Sources sources;
  for (int r = 0; r < n; ++r) sources.push_back(choices.below(n + 1) - 1);
  return sources;
}

Counts random_counts(const Rows& rows, uint64_t dice) {
  Counts counts;
  for (const int64_t mine : rows)
    counts.push_back(random_split(mine, static_cast<int>(rows.size()), dice + counts.size()));
  return counts;
}

RandomPortions RandomPortions::draw(const Rows& rows, uint64_t dice) {
  Dice choices(dice);
  const bool prefixes = choices.chance(0.2);
  RandomPortions result{rows, Rows(rows.size()), {}};
  for (int64_t& to : result.result_rows)
    for (const int64_t from : rows) {
      Portion portion = no_portion;
      if (from > 0 && choices.chance(0.6)) {
        portion.from = prefixes ? 0 : choices.below(static_cast<int>(from));
        portion.count = 1 + choices.below(static_cast<int>(from - portion.from));
        portion.to = prefixes ? 0 : choices.below(3);
      }
      if (portion.count > 0) to = std::max(to, portion.to + portion.count);
      result.portions.push_back(portion);
    }
  return result;
}

RandomPortions RandomPortions::adjoint() const {
  RandomPortions result{result_rows, given_rows, {}};
  const auto ranks = static_cast<int>(given_rows.size());
  for (int reader = 0; reader < ranks; ++reader)
    for (int source = 0; source < ranks; ++source) {
      const Portion back = portion(source, reader);
      result.portions.push_back({back.to, back.count, back.from});
    }
  return result;
}

Rows RandomPortions::agreed() const {
  Rows all = given_rows;
  for (const Portion& p : portions) all.insert(all.end(), {p.from, p.count, p.to});
  return all;
}

}  // namespace weft::random_programs
