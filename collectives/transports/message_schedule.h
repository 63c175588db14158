// SPDX-License-Identifier: Apache-2.0
#pragma once
// How the data of a collective move by messages. It is chosen for each call, from what moves, how many bytes and ranks
// there are, and the link; all ranks of a group know the same link, so they choose alike. Each then makes a list of
// what it does (message_steps.h), and `weft plan` computes what that takes. Sums over nodes of several ranks are
// planned in nodes/sum_plan.h; between their leaders there are exchanges only.
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
  by_mpi,         // MPI gathers all on every rank, which folds it if it is a sum
  in_slices,      // each rank gets a slice of everything that is read, folds it, and sends it to all who read it
  by_halving,     // each rank swaps half of what it has with one rank after another
};

struct MessageSchedule {
  Movement movement;
  Way way;
  double bytes;  // of the result of a gathering, and of one rank's tensor otherwise
  int64_t ranks;

  MessageCost cost(const Link& link) const;
};
MessageSchedule message_schedule(Movement movement, double bytes, int64_t ranks, const Link& link);

// In words, for the sizes from which on something else is chosen.
std::string choices_on(const Link& link, int64_t ranks, bool of_leaders = false);

}  // namespace weft
