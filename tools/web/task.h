// SPDX-License-Identifier: Apache-2.0
#pragma once
// A collective with the rows of all ranks' tensors.
#include <variant>

#include "tools/web/blocks.h"

namespace weft::web {

using AnyVerb = std::variant<AllGather, ReduceScatter, AllReduce, Broadcast, Reduce, Gather, Scatter, AllToAll, Permute,
                             Scan, Exscan, Sums>;

inline constexpr int most_ranks = 5;

struct Task {
  AnyVerb verb;
  Rows inputs;  // how many rows each rank's tensor has
  Blocks blocks() const {
    return std::visit([&](const auto& verb) { return blocks_of(verb, inputs); }, verb);
  }
};

}  // namespace weft::web
