// SPDX-License-Identifier: Apache-2.0
#pragma once
// Who sends what to whom in a collective by messages.
#include <vector>

#include "weft/collectives/transports/message_schedule.h"

namespace weft {

// The messages of all ranks, step by step, if a rank reads so many bytes of a source.
struct SentStep {
  struct Message {
    int from, to;
    size_t bytes;
  };
  const char* what;
  std::vector<Message> messages;
};
std::vector<SentStep> messages_of(const MessageSchedule& schedule, FunctionRef<size_t(int reader, int source)> reads);

}  // namespace weft
