// SPDX-License-Identifier: Apache-2.0
#include "tools/weft/plan/call_cost.h"

#include "weft/collectives/transports/message_schedule.h"

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
  if (verb == Verb::send) return {0, 0, size};  // with its comparison
  if (verb == Verb::custom)
    fail({"plan: the run calls collectives of its own (", text(verb), "), whose messages are not known"});
  return message_schedule(traits(verb).movement, size, ranks, link).cost(link);
}

}  // namespace weft::plan
