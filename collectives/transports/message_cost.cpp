// SPDX-License-Identifier: Apache-2.0
#include "weft/collectives/transports/message_cost.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "weft/engine/tensor/error.h"
#include "weft/engine/text/units.h"

namespace weft {
namespace {

double parts(const Link& link, double bytes_of_rank, int64_t ranks) {
  return std::max(std::ceil(bytes_of_rank / static_cast<double>(bytes_of_part(link, ranks))), 1.0);
}
// Two parts are on their way at a time. So latency counts once, and of every further two parts only what the link is
// idle, because a latency is longer than a part takes.
double rounds_of(double parts, double bytes, const Link& link) {
  const double idle = std::max(0.0, 1 - bytes / parts / link.bandwidth / link.latency);
  return 1 + std::floor((parts - 1) / 2) * idle;
}
double doublings(int64_t ranks) { return std::bit_width(static_cast<uint64_t>(ranks - 1)); }
bool is_power_of_two(int64_t ranks) { return std::has_single_bit(static_cast<uint64_t>(ranks)); }
double others(double bytes, int64_t ranks) { return bytes - bytes / static_cast<double>(ranks); }

}  // namespace

Link parsed_link(const std::string& given) {
  std::vector<std::string> words(1);
  for (const char c : given)
    if (c == ',')
      words.emplace_back();
    else
      words.back() += c;
  require(words.size() == 2 || words.size() == 3, "'", given, "' is not a latency and a bandwidth, as 20us,1Gbit");
  Link link{parsed_seconds(words[0]), parsed_bytes_per_second(words[1])};
  require(link.bandwidth > 0, "'", given, "': a link of ", words[1], " carries nothing");
  if (words.size() == 3) link.overhead = parsed_seconds(words[2]);
  return link;
}

std::string text(const Link& link) {
  return in_seconds(link.latency) + "," + in_bits_per_second(link.bandwidth) + "," + in_seconds(link.overhead);
}

MessageCost& MessageCost::operator+=(const MessageCost& other) {
  rounds += other.rounds, messages += other.messages, bytes += other.bytes;
  return *this;
}
double MessageCost::seconds(const Link& link) const {
  return rounds * link.latency + messages * link.overhead + bytes / link.bandwidth;
}

// At least four messages. The largest parts fill a link of 10 Gbit.
int64_t bytes_of_part(const Link& link, int64_t ranks) {
  const double carried = std::clamp((0.5e-3 + 2 * link.latency) * link.bandwidth, 0x1p16, 0x1p18);
  return std::min(static_cast<int64_t>(carried), (int64_t{64} << 20) / ranks) / 64 * 64;
}

// The limits are those of MPICH; numbers of ranks that are no power of two have a lower one.
MessageCost cost_of_gathering(const Link& link, double total, int64_t ranks) {
  const double count = parts(link, total / static_cast<double>(ranks), ranks);
  const bool doubles = total / count < (is_power_of_two(ranks) ? 512 : 80) * 1024.0;
  const double rounds = count * (doubles ? doublings(ranks) : static_cast<double>(ranks - 1));
  return {rounds, rounds, others(total, ranks)};
}
MessageCost cost_of_slices(const Link& link, double bytes, int64_t ranks) {
  const double count = parts(link, bytes / static_cast<double>(ranks), ranks), received = others(bytes, ranks);
  return {rounds_of(count, received, link), count * static_cast<double>(ranks - 1), received};
}
// While a part is gathered, the next is on its way, so the rounds of one gathering count.
MessageCost cost_of_sum(const Link& link, double bytes, int64_t ranks) {
  MessageCost gathering = cost_of_gathering(link, bytes, ranks);
  gathering.rounds /= parts(link, bytes / static_cast<double>(ranks), ranks);
  return cost_of_slices(link, bytes, ranks) += gathering;
}
MessageCost cost_of_halving(double bytes, int64_t ranks) {
  return {doublings(ranks), doublings(ranks), others(bytes, ranks)};
}
MessageCost cost_of_copies(const Link& link, double bytes, int64_t ranks) {
  const double count = parts(link, bytes, ranks), sent = static_cast<double>(ranks - 1) * bytes;
  return {rounds_of(count, sent, link), count * static_cast<double>(ranks - 1), sent};
}
MessageCost cost_of_sliced_copies(const Link& link, double bytes, int64_t ranks) {
  MessageCost cost = cost_of_slices(link, bytes, ranks);
  cost.rounds = parts(link, bytes / static_cast<double>(ranks), ranks);  // one part after another
  return cost * 2;
}

}  // namespace weft
