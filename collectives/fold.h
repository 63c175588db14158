// SPDX-License-Identifier: Apache-2.0
#pragma once
// The fold of the ranks' terms, which is every reduction over ranks.
#include "weft/collectives/fold_order.h"
#include "weft/collectives/transport.h"

namespace weft {

// Combines term(rank) of all these ranks in the order of the tree.
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
  bool in_place;  // whether kernels of this rank can read all parts, in the order of its stream; if not, it waits
  FoldOrder order = {};
  DType result_dtype = dtype;  // what is written
  size_t terms = 0;            // of which a mean is taken; 0: as many as there are ranks

  // The fold in two stages: ranks that are near each other fold whole subtrees first, without rounding. The parts of
  // the second stage are those folds, each in the place of the first rank of its subtree. Between both, folds may be
  // folded any number of times.
  DType between_stages() const { return dtype == DType::bf16 ? DType::f32 : dtype; }
  Fold first_stage(std::span<const int> subtree) const {
    return {subtree, sum_op(), dtype, device, in_place, {}, between_stages()};
  }
  Fold between(std::span<const int> first_ranks, FoldOrder order) const {
    return {first_ranks, sum_op(), between_stages(), device, in_place, order, between_stages()};
  }
  Fold second_stage(std::span<const int> first_ranks, size_t all_terms, FoldOrder order = {}) const {
    return {first_ranks, op, between_stages(), device, in_place, order, result_dtype, all_terms};
  }

  // Writes to `to`, which may be one of the ranks' parts, the fold of `count` elements, from element `first` on.
  void write(const Transport::Part& part, int64_t first, int64_t count, std::byte* to) const;
  // The same for a whole part.
  void write(const Transport::Part& part, std::byte* to) const {
    write(part, 0, static_cast<int64_t>((part.last - part.first) / size_of(dtype)), to);
  }
  // Makes means of what a library has added, as far as means are wanted.
  void divide(std::byte* sums, int64_t count) const;

 private:
  ReduceOp sum_op() const { return op == ReduceOp::mean ? ReduceOp::sum : op; }
};

}  // namespace weft
