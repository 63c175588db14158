// SPDX-License-Identifier: Apache-2.0
#include "tools/weft/plan/call_cost.h"

namespace weft::plan {
namespace {

constexpr double announcement = 64;  // bytes of each rank (collectives/transports/mpi/mpi_group.h)

}  // namespace

// The ranks of a node share its link, and what they send each other does not use it.
double seconds(const MessageCost& cost, const NodeLink& link, int64_t ranks) {
  const auto n = static_cast<double>(ranks), on_node = static_cast<double>(link.ranks_per_node);
  if (n <= on_node) return 0;
  MessageCost over_link = cost;
  over_link.bytes *= on_node * (n - on_node) / (n - 1);
  return over_link.seconds(link);
}

bool gathers(Verb verb) {
  return verb == Verb::all_gather || verb == Verb::all_gather_v || verb == Verb::gather || verb == Verb::gather_v;
}
bool has_root(Verb verb) { return verb == Verb::broadcast || verb == Verb::scatter || verb == Verb::scatter_v; }

MessageCost comparison(Verb verb, int64_t ranks, const Link& link) {
  if (ranks == 1 || verb == Verb::receive) return {};
  if (verb == Verb::send) return {1, 1, announcement};
  return cost_of_gathering(link, announcement * static_cast<double>(ranks), ranks);
}

MessageCost transfer(Verb verb, double size, int64_t ranks, const Link& link) {
  if (ranks == 1) return {};
  switch (verb) {
    case Verb::all_reduce: {
      const double all = static_cast<double>(ranks) * size;
      if (all <= 1024) return cost_of_gathering(link, all, ranks);
      if (sums_in_halves(link, size, ranks)) return cost_of_halves(size, ranks) * 2;
      return cost_of_sum(link, size, ranks);
    }
    case Verb::all_gather:
    case Verb::all_gather_v:
      return gathers_directly(link, size, ranks) ? cost_of_slices(link, size, ranks)
                                                 : cost_of_gathering(link, size, ranks);
    case Verb::reduce_scatter:
      if (sums_in_halves(link, size, ranks)) return cost_of_halves(size, ranks);
      return cost_of_slices(link, size, ranks);
    case Verb::reduce_scatter_v:
    case Verb::gather:
    case Verb::gather_v:
    case Verb::scatter:
    case Verb::scatter_v:
    case Verb::all_to_all:
    case Verb::all_to_all_v: return cost_of_slices(link, size, ranks);
    case Verb::broadcast:
      return copies_in_slices(link, size, ranks) ? cost_of_sliced_copies(link, size, ranks)
                                                 : cost_of_copies(link, size, ranks);
    case Verb::reduce:
    case Verb::scan:
    case Verb::exscan:
    case Verb::reverse_scan:
    case Verb::reverse_exscan:
      return size <= 256 ? cost_of_copies(link, size, ranks) : cost_of_slices(link, size, ranks) * 2;
    case Verb::permute:
    case Verb::permute_back: return cost_of_copies(link, size, 2);
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
