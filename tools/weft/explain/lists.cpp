// SPDX-License-Identifier: Apache-2.0
#include "tools/weft/explain/lists.h"

#include <algorithm>

namespace weft::verify {

std::string listed(const std::vector<std::string>& all, const std::string& last) {
  std::string list;
  for (size_t i = 0; i < all.size(); ++i) list += (i == 0 ? "" : i + 1 == all.size() ? last : ", ") + all[i];
  return list;
}

std::string told_by_rank(const std::vector<std::string>& of_ranks) {
  std::string all;
  for (size_t r = 0; r < of_ranks.size(); ++r) {
    const auto here = of_ranks.begin() + static_cast<std::ptrdiff_t>(r);
    if (std::find(of_ranks.begin(), here, *here) != here) continue;
    std::vector<std::string> same;
    for (size_t q = r; q < of_ranks.size(); ++q)
      if (of_ranks[q] == of_ranks[r]) same.push_back(std::to_string(q));
    if (same.size() == of_ranks.size()) return of_ranks[r];
    all += (all.empty() ? "on rank" : "; on rank") + std::string(same.size() == 1 ? " " : "s ") + listed(same) + " " +
           of_ranks[r];
  }
  return all;
}

}  // namespace weft::verify
