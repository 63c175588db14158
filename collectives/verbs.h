// SPDX-License-Identifier: Apache-2.0
#pragma once
// The linear collectives as values. Each is a matrix of portions: `portion(reader, source)` tells which part of the
// source's tensor the reader takes, and where it is in the reader's result. Portions of several sources that fall on
// the same place are added. Everything else follows from this: what each rank sends to which, the shape of the result,
// and the gradient, because the adjoint of a matrix is its transpose:
//
//   AllReduce      <->  AllReduce        sums to all ranks
//   ReduceScatter  <->  AllGather        sums divided among ranks; the rows of all ranks to all ranks
//   Reduce         <->  Broadcast        sums to one rank; one rank's values to all ranks
//   Gather         <->  Scatter          the rows of all ranks to one rank; one rank's rows divided among all
//   AllToAll       <->  AllToAll         blocks between all ranks; the reverse has the counts swapped
//   Permute        <->  Permute          another rank's values; the reverse sums them at their source
//   Scan           <->  Scan             sums over the ranks before; sums over the ranks after
//
// The adjoints hold for sums and for moving data. A mean is a sum divided by the number of its terms. Maximum, minimum
// and product, which these verbs also accept, have no adjoint here; `instead` names an op that has one.
//
// The concept LinearCollective below lists what else a collective tells: its verb in calls (`custom` for a program's
// own), its name on the tape (`op_name`), the placement of its result, whether its input is a term of a sum over the
// group (`sums`), and whether its unit is a row (`by_rows`) or the whole tensor. `exposed` is how many units of a
// rank's tensor others may read. Of those with `rows`, `divides` tells whether the rows of an input are divided among
// ranks. `agreed` are counts that must be equal on all ranks. Counts of rows may be left out if they are equal; a
// Communicator fills them in before it asks for portions.
#include <concepts>
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
inline int64_t rows_of_rank(const Rows& rows, int rank) { return rows[static_cast<size_t>(rank)]; }

// `count` units of a source's tensor, from unit `from` on, which are at unit `to` of a reader's result.
struct Portion {
  int64_t from = 0, count = 0, to = 0;
  auto operator<=>(const Portion&) const = default;
};
inline constexpr Portion whole_tensor{0, 1, 0}, no_portion{};

struct Broadcast;
struct ReduceScatter;
struct Scatter;

struct AllReduce {
  ReduceOp op = ReduceOp::sum;
  AllReduce adjoint() const { return {}; }
  Portion portion(int, int) const { return whole_tensor; }
  int64_t exposed(int) const { return 1; }
  Verb verb() const { return Verb::all_reduce; }
  static constexpr const char* op_name = "all_reduce";
  static constexpr const char* instead = "take all_reduce, in one piece";
  static constexpr bool by_rows = false, sums = true;
  static constexpr Placement result = Placement::replicated;
};

struct AllGather {
  Rows rows = {};
  ReduceScatter adjoint() const;
  Portion portion(int, int source) const { return {0, rows_of_rank(rows, source), rows_before(rows, source)}; }
  int64_t exposed(int rank) const { return rows_of_rank(rows, rank); }
  Verb verb() const { return rows.empty() ? Verb::all_gather : Verb::all_gather_v; }
  const Rows& agreed() const { return rows; }
  static constexpr const char* op_name = "all_gather";
  static constexpr bool by_rows = true, divides = false, sums = false;
  static constexpr Placement result = Placement::replicated;
};

struct ReduceScatter {
  Rows rows = {};
  ReduceOp op = ReduceOp::sum;
  AllGather adjoint() const { return {rows}; }
  Portion portion(int reader, int) const { return {rows_before(rows, reader), rows_of_rank(rows, reader), 0}; }
  int64_t exposed(int) const { return total_rows(rows); }
  Verb verb() const { return rows.empty() ? Verb::reduce_scatter : Verb::reduce_scatter_v; }
  const Rows& agreed() const { return rows; }
  static constexpr const char* op_name = "reduce_scatter";
  static constexpr const char* instead = "take all_reduce and slice it";
  static constexpr bool by_rows = true, divides = true, sums = true, slices = true;
  static constexpr Placement result = Placement::varying;
};

struct Reduce {
  GroupRank root;
  ReduceOp op = ReduceOp::sum;
  Broadcast adjoint() const;
  Portion portion(int reader, int) const { return reader == root.value ? whole_tensor : no_portion; }
  int64_t exposed(int) const { return 1; }
  Verb verb() const { return Verb::reduce; }
  static constexpr const char* op_name = "reduce";
  static constexpr const char* instead = "take all_reduce and use it on the root";
  static constexpr bool by_rows = false, sums = true;
  static constexpr Placement result = Placement::varying;
};

struct Broadcast {
  GroupRank root;
  Reduce adjoint() const { return {root}; }
  Portion portion(int, int source) const { return source == root.value ? whole_tensor : no_portion; }
  int64_t exposed(int rank) const { return rank == root.value; }
  Verb verb() const { return Verb::broadcast; }
  static constexpr const char* op_name = "broadcast";
  static constexpr bool by_rows = false, sums = false;
  static constexpr Placement result = Placement::replicated;
};

struct Gather {
  GroupRank root;
  Rows rows = {};
  Scatter adjoint() const;
  Portion portion(int reader, int source) const {
    return reader == root.value ? Portion{0, rows_of_rank(rows, source), rows_before(rows, source)} : no_portion;
  }
  int64_t exposed(int rank) const { return rows_of_rank(rows, rank); }
  Verb verb() const { return rows.empty() ? Verb::gather : Verb::gather_v; }
  const Rows& agreed() const { return rows; }
  static constexpr const char* op_name = "gather";
  static constexpr bool by_rows = true, divides = false, sums = false;
  static constexpr Placement result = Placement::varying;
};

struct Scatter {
  GroupRank root;
  Rows rows = {};
  Gather adjoint() const { return {root, rows}; }
  Portion portion(int reader, int source) const {
    return source == root.value ? Portion{rows_before(rows, reader), rows_of_rank(rows, reader), 0} : no_portion;
  }
  int64_t exposed(int rank) const { return rank == root.value ? total_rows(rows) : 0; }
  Verb verb() const { return rows.empty() ? Verb::scatter : Verb::scatter_v; }
  const Rows& agreed() const { return rows; }
  static constexpr const char* op_name = "scatter";
  static constexpr bool by_rows = true, divides = true, sums = false;
  static constexpr Placement result = Placement::varying;
};

struct AllToAll {
  Counts counts = {};  // empty: equal blocks
  AllToAll adjoint() const;
  Portion portion(int reader, int source) const;
  int64_t exposed(int rank) const { return total_rows(counts[static_cast<size_t>(rank)]); }
  Verb verb() const { return counts.empty() ? Verb::all_to_all : Verb::all_to_all_v; }
  Rows agreed() const;  // all counts
  static constexpr const char* op_name = "all_to_all";
  static constexpr bool by_rows = true, divides = true, sums = false;
  static constexpr Placement result = Placement::varying;
};

struct Permute {
  Sources source;
  bool back = false;  // the adjoint: each rank gets the sum of the values of the ranks that read it
  Permute adjoint() const { return {source, !back}; }
  Portion portion(int reader, int from) const {
    return (back ? source[static_cast<size_t>(from)] == reader : source[static_cast<size_t>(reader)] == from)
               ? whole_tensor
               : no_portion;
  }
  int64_t exposed(int) const { return 1; }
  Verb verb() const { return back ? Verb::permute_back : Verb::permute; }
  const Sources& agreed() const { return source; }
  static constexpr const char* op_name = "permute";
  static constexpr bool by_rows = false, sums = false;
  static constexpr Placement result = Placement::varying;
};

// Inclusive: includes the rank itself.
template <bool inclusive> struct ScanOf {
  ReduceOp op = ReduceOp::sum;
  bool reverse = false;  // over the ranks after this one instead of those before
  ScanOf adjoint() const { return {ReduceOp::sum, !reverse}; }
  Portion portion(int reader, int source) const {
    const bool included = reader == source ? inclusive : (source < reader) != reverse;
    return included ? whole_tensor : no_portion;
  }
  int64_t exposed(int) const { return 1; }
  Verb verb() const {
    if constexpr (inclusive) return reverse ? Verb::reverse_scan : Verb::scan;
    return reverse ? Verb::reverse_exscan : Verb::exscan;
  }
  static constexpr const char* op_name = inclusive ? "scan" : "exscan";
  static constexpr const char* instead = "take scan, in one piece";
  static constexpr bool by_rows = false, sums = false;
  static constexpr Placement result = Placement::varying;
};
using Scan = ScanOf<true>;
using Exscan = ScanOf<false>;

inline ReduceScatter AllGather::adjoint() const { return {rows}; }
inline Broadcast Reduce::adjoint() const { return {root}; }
inline Scatter Gather::adjoint() const { return {root, rows}; }

inline AllToAll AllToAll::adjoint() const {
  AllToAll other{counts};
  for (size_t r = 0; r < counts.size(); ++r)
    for (size_t s = 0; s < counts.size(); ++s) other.counts[s][r] = counts[r][s];
  return other;
}
inline Portion AllToAll::portion(int reader, int source) const {
  const Rows& sent = counts[static_cast<size_t>(source)];
  int64_t to = 0;
  for (int s = 0; s < source; ++s) to = sum_of_extents({to, rows_of_rank(counts[static_cast<size_t>(s)], reader)});
  return {rows_before(sent, reader), rows_of_rank(sent, reader), to};
}
inline Rows AllToAll::agreed() const {
  Rows all;
  for (const Rows& row : counts) all.insert(all.end(), row.begin(), row.end());
  return all;
}

// What a linear collective tells of itself; see above.
template <class C>
concept LinearCollective = requires(const C collective, int rank) {
  { collective.portion(rank, rank) } -> std::same_as<Portion>;
  { collective.exposed(rank) } -> std::same_as<int64_t>;
  { collective.verb() } -> std::same_as<Verb>;
  { C::op_name } -> std::convertible_to<const char*>;
  { C::by_rows } -> std::convertible_to<bool>;
  { C::sums } -> std::convertible_to<bool>;
  { C::result } -> std::convertible_to<Placement>;
  collective.adjoint();
};
template <class C>
concept Reducing = requires(C collective) {
  collective.op;
};
template <class C>
concept Rooted = requires(C collective) {
  collective.root;
};
// The counts of axis 0 on all ranks, which Communicator checks against a tensor, or fills in.
template <class C>
concept HasRows = requires(C collective) {
  collective.rows;
  C::divides;
};
// Every reader reads the same rows of all ranks.
template <class C>
concept Slicing = requires {
  requires C::slices;
};
template <class C>
concept Agreeing = requires(C collective) {
  collective.agreed();
};

template <LinearCollective C> ReduceOp reduction_of(const C& collective) {
  if constexpr (Reducing<C>) return collective.op;
  return ReduceOp::sum;
}
// The call that a rank makes. Where the rows of inputs may differ between ranks, so may their extents; all ranks must
// know the same counts of them.
template <LinearCollective C> Call describe_call(const C& collective, const Tensor& x, int ranks, Site site) {
  int root = -1;
  if constexpr (Rooted<C>) root = collective.root.value;
  Rows counts;
  if constexpr (Agreeing<C>)
    counts = collective.agreed();
  else if (C::by_rows && collective.verb() == Verb::custom)
    for (int r = 0; r < ranks; ++r) counts.push_back(collective.exposed(r));
  const bool uneven = C::by_rows && (!C::sums || collective.verb() == Verb::custom) && !counts.empty();
  Call call = describe(collective.verb(), x, site, reduction_of(collective), root, uneven);
  if (collective.verb() == Verb::custom)
    call = with_name(call, std::string(C::op_name) + (*site.name ? " of " : "") + site.name);
  return counts.empty() ? call : with_counts(call, counts);
}
// Whether any rank gets a sum, or another reduction, of whole portions: if not, portions are copied.
template <LinearCollective C> bool adds(const C& collective, int ranks) {
  if constexpr (Slicing<C> || (Reducing<C> && !C::by_rows)) return true;
  for (int reader = 0; reader < ranks && !C::by_rows; ++reader) {
    int sources = 0;
    for (int source = 0; source < ranks; ++source) sources += collective.portion(reader, source).count > 0;
    if (sources > 1) return true;
  }
  return false;
}
// The number of terms of the sums that a rank gets.
template <LinearCollective C> int terms(const C& collective, int rank, int ranks) {
  if (Slicing<C>) return ranks;
  int count = 0;
  for (int source = 0; source < ranks; ++source) count += collective.portion(rank, source).count > 0;
  return count;
}

}  // namespace weft
