// SPDX-License-Identifier: Apache-2.0
#include "tools/weft/plan/printed_schedule.h"

#include <sstream>

#include "tools/weft/plan/call_cost.h"
#include "weft/collectives/fold.h"
#include "weft/collectives/transports/sent_messages.h"
#include "weft/collectives/verbs.h"
#include "weft/engine/text/units.h"
#include "weft/engine/text/words.h"

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

void print_steps(const std::vector<SentStep>& steps, std::ostream& out) {
  int number = 1;
  for (const SentStep& step : steps) {
    out << "  " << ++number << ". " << step.what << "\n";
    print_messages(step, out);
  }
}

// A collective on ranks that all give `bytes`, and what moves in it.
template <LinearCollective C> struct Moving {
  const C& collective;
  int ranks;
  double bytes;

  double unit() const {  // of a portion
    if constexpr (C::by_rows) return C::divides ? bytes / ranks : bytes;
    return bytes;
  }
  ByteRange reads(int reader, int source) const {
    const Portion portion = collective.portion(reader, source);
    const auto at = [&](int64_t units) { return static_cast<size_t>(static_cast<double>(units) * unit()); };
    return {at(portion.from), at(portion.from + portion.count)};
  }
  bool reduces() const { return (Slicing<C> || !C::by_rows) && adds(collective, ranks); }
};

template <LinearCollective C> std::string over_link(const Moving<C>& moving, const Link& link) {
  double all = moving.bytes;  // of the result of a gathering
  if constexpr (C::by_rows) all = moving.unit() == all ? all * moving.ranks : all;
  const Verb verb = moving.collective.verb();
  const Movement movement = Slicing<C> ? Movement::shares : traits(verb).movement;
  const MessageSchedule chosen = message_schedule(movement, all, moving.ranks, link);
  const MessageCost cost = comparison(verb, moving.ranks, link) += chosen.cost(link);
  std::ostringstream out;
  out << ", over a link of " << text(link) << ", takes about " << in_seconds(cost.seconds(link)) << ":\n"
      << "  1. ranks compare their calls: 64 bytes of each"
      << (chosen.way == Way::with_the_call ? ", and its tensor" : "") << "\n";
  print_steps(messages_of(chosen, [&](int reader, int source) { return moving.reads(reader, source); }), out);
  return out.str();
}

template <LinearCollective C> std::string over_nodes(const Moving<C>& moving, int ranks_per_node) {
  const auto reads = [&](int reader, int source) { return moving.reads(reader, source); };
  std::vector<ByteRange> slices;
  for (int r = 0; r < moving.ranks && Slicing<C>; ++r) slices.push_back(moving.reads(r, 0));
  const auto reads_any = [&](int reader, int source) { return Slicing<C> || reads(reader, source).size() > 0; };
  const Fold fold{{}, ReduceOp::sum, DType::f32, Device::cpu, true, FoldOrder::of(moving.collective.verb(), 0)};
  const Transport::Reduction reduction{{reads_any, slices, std::is_same_v<C, AllReduce>}, fold};
  std::ostringstream out;
  out << ", " << ranks_per_node << " on each node:\n  1. the ranks of a node "
      << (moving.reduces() ? "add, each a share of their tensors," : "put what other nodes read")
      << " in memory that they share\n";
  print_steps(messages_of_leaders(moving.ranks, ranks_per_node, static_cast<size_t>(moving.bytes),
                                  moving.reduces() ? &reduction : nullptr, reads),
              out);
  return out.str();
}

template <LinearCollective C> std::string printed(const C& collective, double bytes, int ranks, const NodeLink& link) {
  const Moving<C> moving{collective, ranks, bytes};
  const auto on_each = static_cast<int>(link.ranks_per_node);
  return C::op_name + (" of " + bytes_in_words(bytes) + " on " + text(ranks) + " ranks") +
         (on_each == 1 ? over_link(moving, link) : over_nodes(moving, on_each));
}

}  // namespace

std::string printed_schedule(const std::string& name, int64_t bytes, int ranks, const NodeLink& link) {
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
