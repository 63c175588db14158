// SPDX-License-Identifier: Apache-2.0
#pragma once
// Who sends what to whom in a collective by messages.
#include <vector>

#include "weft/collectives/transports/message_schedule.h"

namespace weft {

// The messages of a step.
struct SentStep {
  struct Message {
    int from, to;
    size_t bytes;
  };
  const char* what;
  std::vector<Message> messages;
};
// Which bytes of a source a rank reads.
using ReadBytes = FunctionRef<ByteRange(int reader, int source)>;

// Of all ranks, each on a node of its own.
std::vector<SentStep> messages_of(const MessageSchedule& schedule, ReadBytes reads);
// Of the leaders of nodes that have so many ranks each, in a reduction of so many bytes, or else an exchange.
std::vector<SentStep> messages_of_leaders(int ranks, int ranks_per_node, size_t bytes,
                                          const Transport::Reduction* reduction, ReadBytes reads);

}  // namespace weft
