// SPDX-License-Identifier: Apache-2.0
#pragma once
// The linear collectives as values. Each holds the parameters on which its ranks must agree, and gives its adjoint,
// which is also one of these:
//
//   AllReduce      <->  AllReduce        sums to all ranks
//   ReduceScatter  <->  AllGather        sums divided among ranks; the rows of all ranks to all ranks
//   Reduce         <->  Broadcast        sums to one rank; one rank's values to all ranks
//   Gather         <->  Scatter          the rows of all ranks to one rank; one rank's rows divided among all
//   AllToAll       <->  AllToAll         blocks between all ranks; the reverse has the counts swapped
//   Permute        <->  Permute          another rank's values; the reverse sums them at their source
//   Scan           <->  Scan             sums over the ranks before; sums over the ranks after
//
// The adjoints hold for sums and for moving data. A mean is a sum divided by `terms`, the number of terms on this rank.
// Maximum, minimum and product, which these verbs also accept, have no adjoint here; `instead` names an op that has
// one.
#include <vector>

#include "weft/collectives/call.h"
#include "weft/engine/tape/placement.h"
#include "weft/engine/tensor/pool.h"

namespace weft {

using Rows = std::vector<int64_t, pool::Allocator<int64_t>>;  // the extent of axis 0 on each rank; empty: all equal
using Sources = Rows;                                         // for each rank, the rank that it reads, or -1
using Counts = std::vector<Rows, pool::Allocator<Rows>>;      // counts[r][s]: the rows that rank r sends to rank s

inline int64_t total_rows(const Rows& rows) { return sum_of_extents(rows); }
inline int64_t rows_before(const Rows& rows, int rank) {
  return sum_of_extents(std::span(rows).first(static_cast<size_t>(rank)));
}

struct Broadcast;
struct ReduceScatter;
struct Scatter;

struct AllReduce {
  ReduceOp op = ReduceOp::sum;
  AllReduce adjoint() const { return {}; }
  int terms(int, int ranks) const { return ranks; }
  static constexpr const char* instead = "take all_reduce, in one piece";
  static constexpr Placement result = Placement::replicated;
};

struct AllGather {
  Rows rows = {};
  ReduceScatter adjoint() const;
  static constexpr Placement result = Placement::replicated;
};
struct ReduceScatter {
  Rows rows = {};
  ReduceOp op = ReduceOp::sum;
  AllGather adjoint() const { return {rows}; }
  int terms(int, int ranks) const { return ranks; }
  static constexpr const char* instead = "take all_reduce and slice it";
  static constexpr Placement result = Placement::varying;
};

struct Reduce {
  GroupRank root;
  ReduceOp op = ReduceOp::sum;
  Broadcast adjoint() const;
  int terms(int, int ranks) const { return ranks; }
  static constexpr const char* instead = "take all_reduce and use it on the root";
  static constexpr Placement result = Placement::varying;
};
struct Broadcast {
  GroupRank root;
  Reduce adjoint() const { return {root}; }
  static constexpr Placement result = Placement::replicated;
};

struct Gather {
  GroupRank root;
  Rows rows = {};
  Scatter adjoint() const;
  static constexpr Placement result = Placement::varying;
};
struct Scatter {
  GroupRank root;
  Rows rows = {};
  Gather adjoint() const { return {root, rows}; }
  static constexpr Placement result = Placement::varying;
};

struct AllToAll {
  Counts counts = {};  // empty: equal blocks
  AllToAll adjoint() const;
  static constexpr Placement result = Placement::varying;
};

struct Permute {
  Sources source;
  bool back = false;  // the adjoint: each rank gets the sum of the values of the ranks that read it
  Permute adjoint() const { return {source, !back}; }
  static constexpr Placement result = Placement::varying;
};

struct Scan {
  bool inclusive = true;  // includes the rank itself
  bool reverse = false;   // over the ranks after this one instead of those before
  ReduceOp op = ReduceOp::sum;
  Scan adjoint() const { return {inclusive, !reverse}; }
  int terms(int rank, int ranks) const { return (reverse ? ranks - 1 - rank : rank) + inclusive; }
  static constexpr const char* instead = "take scan, in one piece";
  static constexpr Placement result = Placement::varying;
};

inline ReduceScatter AllGather::adjoint() const { return {rows}; }
inline Broadcast Reduce::adjoint() const { return {root}; }
inline Scatter Gather::adjoint() const { return {root, rows}; }
inline AllToAll AllToAll::adjoint() const {
  AllToAll other{counts};
  for (size_t r = 0; r < counts.size(); ++r)
    for (size_t s = 0; s < counts.size(); ++s) other.counts[s][r] = counts[r][s];
  return other;
}

}  // namespace weft
