// SPDX-License-Identifier: Apache-2.0
#pragma once
// The words for factors that gradients are off by, for check_scale and for `weft verify`.
#include <array>
#include <cmath>

namespace weft {

struct RankFactor {
  double value;
  const char* name;
};

// Factors that mistakes of reducers and of their callers make, by the number of ranks.
inline std::array<RankFactor, 6> rank_factors(double ranks) {
  return {{{ranks, "the number of ranks"},
           {1 / ranks, "one over the number of ranks"},
           {ranks * ranks, "the number of ranks squared"},
           {1 / (ranks * ranks), "one over the number of ranks squared"},
           {std::sqrt(ranks), "the square root of the number of ranks"},
           {1 / std::sqrt(ranks), "one over the root of the number of ranks"}}};
}

inline constexpr const char* no_multiple = "is no multiple of what it should be";
inline constexpr const char* likely_if_no_multiple =
    "no gradient through a gather, or a term that is cut off or scaled by itself";
inline constexpr const char* likely_if_ranks_differ =
    "a bucket never reduced, or a loss-owned parameter outside the reducer";

}  // namespace weft
