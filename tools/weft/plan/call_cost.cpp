// SPDX-License-Identifier: Apache-2.0
#include "tools/weft/plan/call_cost.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace weft::plan {
namespace {

constexpr double announcement = 64;  // bytes of each rank (weft/collectives/transports/mpi/mpi_group.h)

// How many bytes of every rank move at a time, as in mpi_group.h.
double part_bytes(double n) { return std::min(std::ldexp(1, 18), std::ldexp(1, 26) / n); }
double parts(double bytes_of_rank, double n) { return std::max(std::ceil(bytes_of_rank / part_bytes(n)), 1.0); }

// MPI gathers few bytes by doubling what a rank has, and many in a ring, which takes a round for each rank. The limits
// are those of MPICH; numbers of ranks that are no power of two have a lower one.
CallCost gathering(double total, int64_t ranks) {
  const auto count = static_cast<uint64_t>(ranks);
  const bool doubles = total < (std::has_single_bit(count) ? 512 : 80) * 1024.0;
  const double n = static_cast<double>(ranks), rounds = doubles ? std::bit_width(count - 1) : n - 1;
  return {rounds, rounds, total * (n - 1) / n};
}
CallCost gathering_in_parts(double total, int64_t ranks) {
  const auto n = static_cast<double>(ranks);
  const double count = parts(total / n, n);
  return gathering(total / count, ranks) * count;
}

// Every rank sends to every other at once. `longest` is the longest message.
CallCost direct(double bytes, double longest, int64_t ranks) {
  const auto n = static_cast<double>(ranks);
  return CallCost{1, n - 1, 0} * parts(longest, n) += {0, 0, bytes};
}

}  // namespace

CallCost& CallCost::operator+=(const CallCost& other) {
  rounds += other.rounds, messages += other.messages, bytes += other.bytes;
  return *this;
}

// The ranks of a node share its link, and what they send each other does not use it.
double CallCost::seconds(const Link& link, int64_t ranks) const {
  const auto n = static_cast<double>(ranks), on_node = static_cast<double>(link.ranks_per_node);
  if (n <= on_node) return 0;
  const double over_link = bytes * on_node * (n - on_node) / (n - 1);
  return rounds * link.latency + messages * link.overhead + over_link / link.bandwidth;
}

bool gathers(Verb verb) {
  return verb == Verb::all_gather || verb == Verb::all_gather_v || verb == Verb::gather || verb == Verb::gather_v;
}
bool has_root(Verb verb) { return verb == Verb::broadcast || verb == Verb::scatter || verb == Verb::scatter_v; }

CallCost comparison(Verb verb, int64_t ranks) {
  if (ranks == 1 || verb == Verb::receive) return {};
  if (verb == Verb::send) return {1, 1, announcement};
  return gathering(announcement * static_cast<double>(ranks), ranks);
}

CallCost transfer(Verb verb, double size, int64_t ranks) {
  if (ranks == 1) return {};
  const auto n = static_cast<double>(ranks);
  const double slice = size / n, others = size - slice;  // of equal slices, and all but one's own
  switch (verb) {
    case Verb::all_reduce:
      if (n * size <= 1024) return gathering(n * size, ranks);
      return direct(others, slice, ranks) += gathering_in_parts(size, ranks);
    case Verb::all_gather:
    case Verb::all_gather_v: return gathering_in_parts(size, ranks);
    case Verb::reduce_scatter:
    case Verb::reduce_scatter_v:
    case Verb::gather:
    case Verb::gather_v:
    case Verb::scatter:
    case Verb::scatter_v:
    case Verb::all_to_all:
    case Verb::all_to_all_v: return direct(others, slice, ranks);
    case Verb::broadcast: return direct((n - 1) * size, size, ranks);
    case Verb::reduce:
    case Verb::scan:
    case Verb::exscan:
    case Verb::reverse_scan:
    case Verb::reverse_exscan:
      if (size <= 256) return direct((n - 1) * size, size, ranks);
      return direct(others, slice, ranks) * 2;
    case Verb::permute:
    case Verb::permute_back: {
      const double count = parts(size, n);
      return {count, count, size};
    }
    case Verb::send: return {0, 0, size};  // with its comparison
    case Verb::receive:
    case Verb::barrier:
    case Verb::split:
    case Verb::allocate_common:
    case Verb::finalize: return {};
    case Verb::custom: break;
  }
  fail({"plan: the run calls collectives of its own (", text(verb), "), whose messages are not known"});
}

}  // namespace weft::plan
