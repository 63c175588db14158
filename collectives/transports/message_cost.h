// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the messages of a collective cost on a link.
#include <cstdint>
#include <string>

namespace weft {

struct Link {
  double latency = 20e-6;     // seconds of a round of messages: all that ranks send without waiting for an answer
  double bandwidth = 1.25e8;  // bytes per second that a node receives while it sends as many
  double overhead = 1e-6;     // seconds that a rank spends on each message
};
inline constexpr Link in_memory_of_a_node{1e-6, 5e9, 0.5e-6};
// "20us,1Gbit" or "20us,1Gbit,2us". An Error says what is wrong.
Link parsed_link(const std::string& text);
std::string text(const Link& link);

// Of the rank that has most of it.
struct MessageCost {
  double rounds = 0, messages = 0, bytes = 0;
  MessageCost& operator+=(const MessageCost& other);
  MessageCost operator*(double times) const { return {times * rounds, times * messages, times * bytes}; }
  double seconds(const Link& link) const;
};

// How many bytes of every rank move at a time: what the link carries in a round trip and half a millisecond. They are
// so few that those of all ranks take little memory, and that senders do not overflow the queues of a slow link. A
// multiple of 64.
int64_t bytes_of_part(const Link& link, int64_t ranks);

// An all_gather by MPI: recursive doubling for few bytes, a ring for many.
MessageCost cost_of_gathering(const Link& link, double total, int64_t ranks);
// Pairwise exchange: every rank sends a slice to every other at once. So it gets the slices that it adds or gathers.
MessageCost cost_of_slices(const Link& link, double bytes, int64_t ranks);
// A sum for all ranks: every rank adds up a slice, and all gather these.
MessageCost cost_of_sum(const Link& link, double bytes, int64_t ranks);
// Recursive halving: every rank swaps half of its sums with one rank after another, which takes fewer messages. Only
// powers of two can do that in the order of sums.
MessageCost cost_of_halving(double bytes, int64_t ranks);
// Every rank gets the bytes of one: they are sent to each, or a slice to each, and then the slices are gathered.
MessageCost cost_of_copies(const Link& link, double bytes, int64_t ranks);
MessageCost cost_of_sliced_copies(const Link& link, double bytes, int64_t ranks);

}  // namespace weft
