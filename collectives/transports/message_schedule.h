// SPDX-License-Identifier: Apache-2.0
#pragma once
// How the data of a collective move by messages. It is chosen once, from what moves, how many bytes and ranks there
// are, and the link; all ranks of a group know the same link, so they choose alike. MpiGroup carries it out, `weft
// plan` computes what it takes, and `weft schedule` prints it.
#include <vector>

#include "weft/collectives/call.h"
#include "weft/collectives/transport.h"
#include "weft/collectives/transports/message_cost.h"

namespace weft {

// Of so few bytes of all ranks together, every rank folds all: that takes less time than slices, and hardly more bytes
// than the messages that it saves.
inline constexpr size_t few_in_all = 1024;

enum class Way : uint8_t {
  with_the_call,  // so few bytes are with the calls, which ranks compare first
  directly,       // each rank sends every other what that one reads, and folds what it receives
  by_mpi,         // MPI gathers
  in_slices,      // each rank gets a slice of everything that is read, folds it, and sends it to all who read it
  in_halves,      // each rank swaps half of what it has with one rank after another
};

struct MessageSchedule {
  Movement movement;
  Way way;
  double bytes;  // of the result of a gathering, and of one rank's tensor otherwise
  int64_t ranks;

  MessageCost cost(const Link& link) const;

  // Who sends what to whom after the calls, if a rank reads so many bytes of a source. All messages of a step are on
  // their way at a time, and what they bring is complete before the next step begins.
  struct Message {
    int from, to;
    double bytes;
  };
  struct Step {
    std::string what;
    std::vector<Message> messages;
  };
  std::vector<Step> steps(FunctionRef<double(int reader, int source)> reads) const;
};
MessageSchedule message_schedule(Movement movement, double bytes, int64_t ranks, const Link& link);

// In words, for the sizes from which on something else is chosen.
std::string choices_on(const Link& link, int64_t ranks);

}  // namespace weft
