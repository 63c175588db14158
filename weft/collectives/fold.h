// SPDX-License-Identifier: Apache-2.0
#pragma once
// The fold of the ranks' terms, which is every reduction over ranks. Its order is a binary tree over rank numbers: the
// sum of ranks 0 to 7 is that of 0 to 3 plus that of 4 to 7, and so on down. Ranks that take no part are left out.
// Whoever has the terms of all ranks of a subtree may add them early, such as a node before it uses the network. So the
// bits of a sum depend on the number of ranks alone, and not on where ranks are or how data move between them.
#include <algorithm>
#include <bit>

#include "weft/collectives/transport.h"

namespace weft {

// How many of these ranks, which ascend and are at least two, the tree has in its first half.
inline size_t first_half(std::span<const int> ranks) {
  const auto first = static_cast<unsigned>(ranks.front()), last = static_cast<unsigned>(ranks.back());
  const auto second_half = static_cast<int>(last & ~(std::bit_floor(first ^ last) - 1));
  return static_cast<size_t>(std::lower_bound(ranks.begin(), ranks.end(), second_half) - ranks.begin());
}

// Combines term(rank) of all these ranks in that order.
template <class Term, class Combine>
auto fold_over_ranks(std::span<const int> ranks, const Term& term, const Combine& combine) -> decltype(term(0)) {
  if (ranks.size() == 1) return term(ranks[0]);
  const size_t half = first_half(ranks);
  const auto first = fold_over_ranks(ranks.first(half), term, combine);
  return combine(first, fold_over_ranks(ranks.subspan(half), term, combine));
}

// Which elements of the ranks' parts are folded, and how. Sums of bf16 are rounded once, at the end.
struct Fold {
  std::span<const int> ranks;
  ReduceOp op;
  DType dtype;  // of the parts
  Device device;
  bool in_place;               // whether all parts are known to be where kernels of this rank can read them
  DType result_dtype = dtype;  // what is written
  size_t terms = 0;            // of which a mean is taken; 0: as many as there are ranks

  // The fold in two stages: ranks that are near each other fold whole subtrees first, without rounding. The parts of
  // the second stage are those folds, each in the place of the first rank of its subtree.
  DType between_stages() const { return dtype == DType::bf16 ? DType::f32 : dtype; }
  Fold first_stage(std::span<const int> subtree) const {
    return {subtree, op == ReduceOp::mean ? ReduceOp::sum : op, dtype, device, in_place, between_stages()};
  }
  Fold second_stage(std::span<const int> first_ranks, size_t all_terms) const {
    return {first_ranks, op, between_stages(), device, in_place, result_dtype, all_terms};
  }

  // Writes to `to`, which may be one of the ranks' parts, the fold of `count` elements, from element `first` on.
  void write(const Transport::Part& part, int64_t first, int64_t count, std::byte* to) const;
};

}  // namespace weft
