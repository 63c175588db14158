// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a call costs on a network: the messages that Weft sends by MPI (docs/collectives.md, "What is sent").
#include <cstdint>

#include "weft/collectives/call.h"
#include "weft/collectives/transports/message_cost.h"

namespace weft::plan {

struct NodeLink : Link {
  int64_t ranks_per_node = 1;
};
double seconds(const MessageCost& cost, const NodeLink& link, int64_t ranks);

// Which bytes are the size of a call: those that all ranks give together to a gathering, and otherwise those of one
// rank, the root's if only the root gives any.
bool gathers(Verb verb);
bool has_root(Verb verb);

// The comparison of a call, with which small data go.
MessageCost comparison(Verb verb, int64_t ranks, const Link& link);
// What follows if the data are not small, in the way that is chosen for the link. Throws an Error for a verb of a
// program's own.
MessageCost transfer(Verb verb, double size, int64_t ranks, const Link& link);

}  // namespace weft::plan
