#pragma once
// The linear collectives as values: each is what its ranks must agree on, and knows its adjoint, which is another one.
// A table to read:
//
//   AllReduce      <->  AllReduce        sums to everybody
//   ReduceScatter  <->  AllGather        sums divided among ranks; everybody's rows to everybody
//   Reduce         <->  Broadcast        sums to one rank; one rank's values to everybody
//   Gather         <->  Scatter          everybody's rows to one rank; one rank's rows to everybody
//   AllToAll       <->  AllToAll         blocks from everybody to everybody; back with the counts swapped
//   Permute        <->  Permute          another rank's values; and the other way round
//   Scan           <->  Scan             sums over the ranks before; and over those behind
//
// The adjoints are those of sums and of moving data. A mean is a sum divided by `terms`, the number of values it is of
// on this rank. Extremes and products, which these can also take, have no adjoint here; `instead` says what has one.
#include <vector>

#include "collectives/call.h"
#include "engine/pool.h"
#include "engine/spread.h"

namespace weft {

using Rows = std::vector<int64_t, pool::Allocator<int64_t>>;  // an extent of axis 0 for each rank; none: all the same
using Sources = Rows;                                         // for each rank the one it reads, or -1
using Counts = std::vector<Rows, pool::Allocator<Rows>>;      // counts[r][s]: rows that rank r has for rank s

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
  static constexpr Spread result = Spread::replicated;
};

struct AllGather {
  Rows rows = {};
  ReduceScatter adjoint() const;
  static constexpr Spread result = Spread::replicated;
};
struct ReduceScatter {
  Rows rows = {};
  ReduceOp op = ReduceOp::sum;
  AllGather adjoint() const { return {rows}; }
  int terms(int, int ranks) const { return ranks; }
  static constexpr const char* instead = "take all_reduce and slice it";
  static constexpr Spread result = Spread::varying;
};

struct Reduce {
  GroupRank root;
  ReduceOp op = ReduceOp::sum;
  Broadcast adjoint() const;
  int terms(int, int ranks) const { return ranks; }
  static constexpr const char* instead = "take all_reduce and use it on the root";
  static constexpr Spread result = Spread::varying;
};
struct Broadcast {
  GroupRank root;
  Reduce adjoint() const { return {root}; }
  static constexpr Spread result = Spread::replicated;
};

struct Gather {
  GroupRank root;
  Rows rows = {};
  Scatter adjoint() const;
  static constexpr Spread result = Spread::varying;
};
struct Scatter {
  GroupRank root;
  Rows rows = {};
  Gather adjoint() const { return {root, rows}; }
  static constexpr Spread result = Spread::varying;
};

struct AllToAll {
  Counts counts = {};  // none: equal blocks
  AllToAll adjoint() const;
  static constexpr Spread result = Spread::varying;
};

struct Permute {
  Sources source;
  bool back = false;  // what each rank's values became is added up where they came from
  Permute adjoint() const { return {source, !back}; }
  static constexpr Spread result = Spread::varying;
};

struct Scan {
  bool inclusive = true;  // of the rank itself
  bool reverse = false;   // over the ranks behind instead of those before
  ReduceOp op = ReduceOp::sum;
  Scan adjoint() const { return {inclusive, !reverse}; }
  int terms(int rank, int ranks) const { return (reverse ? ranks - 1 - rank : rank) + inclusive; }
  static constexpr const char* instead = "take scan, in one piece";
  static constexpr Spread result = Spread::varying;
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
