// SPDX-License-Identifier: Apache-2.0
#include "weft/collectives/transports/sent_messages.h"

#include "weft/collectives/transports/message_steps.h"
#include "weft/collectives/transports/nodes/node_steps.h"

namespace weft {
namespace {

// As MpiGroup makes them, but in one part.
MessageSteps steps_of(const MessageSchedule& schedule, int rank, ReadBytes reads) {
  const int n = static_cast<int>(schedule.ranks);
  const auto bytes = static_cast<size_t>(schedule.bytes);
  const StepTaker taker{rank, n, size_t{1} << 40};
  const bool to_all = schedule.movement == Movement::sum;
  const Fold fold{{}, ReduceOp::sum, DType::f32, Device::cpu, true};
  std::vector<ByteRange> of_peers, by_peers;
  std::vector<size_t> sizes;
  for (int r = 0; r < n; ++r) {
    of_peers.push_back(reads(rank, r));
    by_peers.push_back(reads(r, rank));
    sizes.push_back(of_peers.back().size());
  }
  switch (schedule.way) {
    case Way::with_the_call: return {};
    case Way::by_mpi: return exposing_steps(taker, sizes, true);
    case Way::directly: return direct_steps(taker, {of_peers, by_peers});
    case Way::in_slices:
      if (schedule.movement == Movement::one_to_all) return broadcast_steps(taker, {of_peers, by_peers});
      return sum_steps(taker, bytes,
                       to_all ? Readers(n) : Readers(n, [&](int to, int from) { return reads(to, from).size() > 0; }),
                       fold, to_all);
    case Way::by_halving: {
      std::vector<ByteRange> slices;
      for (size_t r = 0; r < sizes.size(); ++r)
        slices.push_back(to_all ? ByteRange{0, bytes}.slice(r, sizes.size())
                                : ByteRange{r * sizes[0], (r + 1) * sizes[0]});
      return halving_steps(taker, slices, fold, to_all);
    }
  }
  return {};
}

std::vector<SentStep> without_idle_steps(std::vector<SentStep> steps) {
  std::erase_if(steps, [](const SentStep& step) { return step.messages.empty(); });
  return steps;
}

std::vector<Crossing::Table> tables_of(const NodeMap& map, size_t bytes, ReadBytes reads) {
  std::vector<Crossing::Table> tables;
  for (const int rank : map.here()) {
    tables.push_back({{0, bytes}});
    for (int source = 0; source < static_cast<int>(map.ranks()); ++source) tables.back().push_back(reads(rank, source));
    for (int reader = 0; reader < static_cast<int>(map.ranks()); ++reader) tables.back().push_back(reads(reader, rank));
  }
  return tables;
}

}  // namespace

std::vector<SentStep> messages_of(const MessageSchedule& schedule, ReadBytes reads) {
  std::vector<SentStep> all;
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    const auto steps = steps_of(schedule, rank, reads).steps;
    for (size_t i = 0; i < steps.size(); ++i) {
      if (i == all.size()) all.push_back({steps[i].what, {}});
      for (const auto& [peer, piece] : steps[i].sends)
        if (peer != rank) all[i].messages.push_back({rank, peer, piece.bytes.size()});
    }
  }
  return without_idle_steps(std::move(all));
}

std::vector<SentStep> messages_of_leaders(int ranks, int ranks_per_node, size_t bytes,
                                          const Transport::Reduction* reduction, ReadBytes reads) {
  NodeMap map;
  for (int r = 0; r < ranks; ++r) {
    map.node_of.push_back(static_cast<size_t>(r / ranks_per_node));
    if (r % ranks_per_node == 0) map.ranks_of.emplace_back();
    map.ranks_of.back().push_back(r);
  }
  SentStep swapped{"the leader of each node sends each other what ranks there read", {}}, gathered{"", {}};
  for (; map.node < map.nodes(); ++map.node) {
    const int leader = map.here()[0];
    const auto add = [&](SentStep& step, const NodeSteps::Swap& swap) {
      for (size_t node = 0; node < map.nodes(); ++node)
        if (node != map.node && swap.by_peers[node].size() > 0)
          step.messages.push_back({leader, map.ranks_of[node][0], swap.by_peers[node].size()});
    };
    std::optional<NodeSteps> steps;
    if (reduction) steps = reduction_steps(map, leader, *reduction, bytes);
    if (steps) {
      swapped.what = "the leader of each node gets a slice of the sums of all nodes, and adds";
      gathered.what = "it sends its slice to the leaders of all nodes that read it";
    } else {
      steps = Crossing::steps(map, 0, bytes, tables_of(map, bytes, reads));
    }
    add(swapped, steps->swap);
    if (steps->gathering) add(gathered, *steps->gathering);
  }
  return without_idle_steps({std::move(swapped), std::move(gathered)});
}

}  // namespace weft
