// SPDX-License-Identifier: Apache-2.0
#include "weft/collectives/transports/message_schedule.h"

#include <bit>

#include "weft/engine/tensor/error.h"
#include "weft/engine/text/units.h"

namespace weft {
namespace {

// The same for a sum that only some ranks read.
constexpr double few_of_one = 256;

Way way_of(Movement movement, double bytes, int64_t ranks, const Link& link) {
  const bool power_of_two = std::has_single_bit(static_cast<uint64_t>(ranks));
  const auto seconds = [&](const MessageCost& cost) { return cost.seconds(link); };
  const auto in_slices = [&] { return seconds(cost_of_slices(link, bytes, ranks)); };
  // Slices move in parts, one of which is on its way while another is folded. So halves must save a tenth.
  const auto halving_is_fast = [&] {
    return ranks > 2 && power_of_two && seconds(cost_of_halving(bytes, ranks)) < 0.9 * in_slices();
  };
  const double of_rank = movement == Movement::gathering ? bytes / static_cast<double>(ranks) : bytes;
  if (of_rank <= static_cast<double>(Transport::small_call)) return Way::with_the_call;
  switch (movement) {
    case Movement::gathering:
      return in_slices() < seconds(cost_of_gathering(link, bytes, ranks)) ? Way::directly : Way::by_mpi;
    case Movement::one_to_all: {
      const bool sliced =
          ranks > 2 && seconds(cost_of_sliced_copies(link, bytes, ranks)) < seconds(cost_of_copies(link, bytes, ranks));
      return sliced ? Way::in_slices : Way::directly;
    }
    case Movement::sum:
      if (static_cast<double>(ranks) * bytes <= few_in_all) return Way::by_mpi;
      return halving_is_fast() ? Way::by_halving : Way::in_slices;
    case Movement::shares:
      if (static_cast<double>(ranks) * bytes <= few_in_all) return Way::directly;
      return halving_is_fast() ? Way::by_halving : Way::directly;
    case Movement::some_sums: return bytes <= few_of_one || ranks == 2 ? Way::directly : Way::in_slices;
    case Movement::nothing:
    case Movement::portions:
    case Movement::one_to_one:
    case Movement::uneven_shares:
    case Movement::unknown: break;
  }
  return Way::directly;
}

constexpr double any_size = 0x1p40;  // bytes

// The longest power of two of bytes up to which this holds, from the first that is not few on; or 0.
template <class Holds> double longest(int64_t ranks, const Holds& holds) {
  double next = 64, bytes = 0;
  while (next * static_cast<double>(ranks) <= few_in_all) next *= 2;
  for (; next <= any_size && holds(next); next *= 2) bytes = next;
  return bytes;
}

std::string in_bytes(double bytes) {
  const char* const units[] = {" B", " KiB", " MiB", " GiB"};
  size_t unit = 0;
  for (; bytes >= 1024 && unit < 3; ++unit) bytes /= 1024;
  return text(static_cast<int64_t>(bytes)) + units[unit];
}

}  // namespace

MessageSchedule message_schedule(Movement movement, double bytes, int64_t ranks, const Link& link) {
  return {movement, way_of(movement, bytes, ranks, link), bytes, ranks};
}

MessageCost MessageSchedule::cost(const Link& link) const {
  if (ranks == 1 || movement == Movement::nothing || way == Way::with_the_call) return {};
  switch (way) {
    case Way::by_mpi:
      return cost_of_gathering(link, movement == Movement::sum ? bytes * static_cast<double>(ranks) : bytes, ranks);
    case Way::by_halving: return cost_of_halving(bytes, ranks) * (movement == Movement::sum ? 2 : 1);
    case Way::in_slices:
      if (movement == Movement::one_to_all) return cost_of_sliced_copies(link, bytes, ranks);
      return movement == Movement::sum ? cost_of_sum(link, bytes, ranks) : cost_of_slices(link, bytes, ranks) * 2;
    case Way::directly:
    case Way::with_the_call: break;
  }
  if (movement == Movement::one_to_one) return cost_of_copies(link, bytes, 2);
  const bool whole = movement == Movement::one_to_all || movement == Movement::some_sums;
  return whole ? cost_of_copies(link, bytes, ranks) : cost_of_slices(link, bytes, ranks);
}

std::string choices_on(const Link& link, int64_t ranks, bool of_leaders) {
  const auto way = [&](Movement movement, double bytes) { return message_schedule(movement, bytes, ranks, link).way; };
  const auto sums = longest(ranks, [&](double bytes) { return way(Movement::shares, bytes) == Way::by_halving; });
  const auto copies = longest(ranks, [&](double bytes) { return way(Movement::one_to_all, bytes) == Way::directly; });
  const auto up_to = [](double bytes, const std::string& few, const std::string& many) {
    return bytes == 0 ? many : bytes == any_size ? few : few + " up to " + in_bytes(bytes) + ", " + many + " beyond";
  };
  const std::string of_sums =
      of_leaders ? "in slices, one for each node" : up_to(sums, "by recursive halving", "by pairwise exchange");
  return "latency " + in_seconds(link.latency) + ", overhead of a message " + in_seconds(link.overhead) +
         ", bandwidth " + in_bits_per_second(link.bandwidth) + "; sums " + of_sums + "; broadcast " +
         up_to(copies, "to each rank", "by scatter and all_gather");
}

}  // namespace weft
