// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a call costs on a network: the messages that Weft sends by MPI (docs/collectives.md, "What is sent").
#include <cstdint>

#include "weft/collectives/call.h"

namespace weft::plan {

struct Link {
  double latency = 0;    // seconds of a round of messages: all that ranks send without waiting for an answer
  double bandwidth = 0;  // bytes per second that a node receives while it sends as many
  double overhead = 0;   // seconds that a rank spends on each message
  int64_t ranks_per_node = 1;
};

// Of the rank that has most of it.
struct CallCost {
  double rounds = 0, messages = 0, bytes = 0;
  CallCost& operator+=(const CallCost& other);
  CallCost operator*(double times) const { return {times * rounds, times * messages, times * bytes}; }
  double seconds(const Link& link, int64_t ranks) const;
};

// Which bytes are the size of a call: those that all ranks give together to a gathering, and otherwise those of one
// rank, the root's if only the root gives any.
bool gathers(Verb verb);
bool has_root(Verb verb);

// The comparison of a call, with which small data go.
CallCost comparison(Verb verb, int64_t ranks);
// What follows if the data are not small. Throws an Error for a verb of a program's own.
CallCost transfer(Verb verb, double size, int64_t ranks);

}  // namespace weft::plan
