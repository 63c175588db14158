// SPDX-License-Identifier: Apache-2.0
#include "tools/weft/plan/printed_schedule.h"

#include <sstream>

#include "apps/shared/run/words.h"
#include "tools/weft/plan/call_cost.h"
#include "weft/collectives/transports/sent_messages.h"
#include "weft/collectives/transports/units.h"
#include "weft/collectives/verbs.h"

namespace weft::plan {
namespace {

// What a rank sends in a step: the same to each of some ranks.
void print_messages(const SentStep& step, std::ostream& out) {
  for (size_t i = 0; i < step.messages.size();) {
    const SentStep::Message& first = step.messages[i];
    out << "     " << first.from << " ->";
    for (; i < step.messages.size() && step.messages[i].from == first.from && step.messages[i].bytes == first.bytes;
         ++i)
      out << " " << step.messages[i].to;
    out << "  " << bytes_in_words(static_cast<double>(first.bytes))
        << (step.messages[i - 1].to == first.to ? "" : " each") << "\n";
  }
}

template <LinearCollective C> std::string printed(const C& collective, double bytes, int ranks, const Link& link) {
  double unit = bytes, all = bytes;  // of a portion, and of the result of a gathering
  if constexpr (C::by_rows) (C::divides ? unit /= ranks : all *= ranks);
  const Movement movement = Slicing<C> ? Movement::shares : traits(collective.verb()).movement;
  const MessageSchedule chosen = message_schedule(movement, all, ranks, link);
  const MessageCost cost = comparison(collective.verb(), ranks, link) += chosen.cost(link);
  std::ostringstream out;
  out << C::op_name << " of " << bytes_in_words(bytes) << " on " << ranks << " ranks, over a link of " << text(link)
      << ", takes about " << in_seconds(cost.seconds(link)) << ":\n";
  const auto reads = [&](int reader, int source) {
    return static_cast<size_t>(static_cast<double>(collective.portion(reader, source).count) * unit);
  };
  out << "  1. ranks compare their calls: 64 bytes of each"
      << (chosen.way == Way::with_the_call ? ", and its tensor" : "") << "\n";
  int number = 1;
  for (const SentStep& step : messages_of(chosen, reads)) {
    out << "  " << ++number << ". " << step.what << "\n";
    print_messages(step, out);
  }
  return out.str();
}

}  // namespace

std::string printed_schedule(const std::string& name, int64_t bytes, int ranks, const Link& link) {
  const auto print = [&](const auto& collective) {
    return printed(collective, static_cast<double>(bytes), ranks, link);
  };
  const Rows rows(static_cast<size_t>(ranks), 1);
  Sources next;
  for (int r = 0; r < ranks; ++r) next.push_back((r + 1) % ranks);
  const GroupRank root{0};
  if (name == "all_reduce") return print(AllReduce{});
  if (name == "all_gather") return print(AllGather{rows});
  if (name == "reduce_scatter") return print(ReduceScatter{rows});
  if (name == "reduce") return print(Reduce{root});
  if (name == "broadcast") return print(Broadcast{root});
  if (name == "gather") return print(Gather{root, rows});
  if (name == "scatter") return print(Scatter{root, rows});
  if (name == "all_to_all") return print(AllToAll{Counts(static_cast<size_t>(ranks), rows)});
  if (name == "permute") return print(Permute{next});
  if (name == "scan") return print(Scan{});
  if (name == "exscan") return print(Exscan{});
  fail({"there is no collective '", name, "'; there are all_reduce, all_gather, reduce_scatter, reduce, broadcast, ",
        "gather, scatter, all_to_all, permute, scan and exscan"});
}

}  // namespace weft::plan
