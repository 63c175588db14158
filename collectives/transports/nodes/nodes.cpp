// SPDX-License-Identifier: Apache-2.0
#include "weft/collectives/transports/nodes/nodes.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>

namespace weft {
namespace {

constexpr size_t least_board = size_t{64} << 10;  // large enough to be shown in place

}  // namespace

std::shared_ptr<Nodes::State> Nodes::join(std::unique_ptr<Transport> flat, std::unique_ptr<Transport> local, Site site,
                                          bool processes) {
  const auto state = std::make_shared<State>();
  state->processes = processes;
  NodeMap& map = state->map;
  const Call call = describe(Verb::split, site);
  const int me = flat->rank();
  int leader = 0;
  local->expose(call, std::as_bytes(std::span(&me, 1)), sizeof me,
                [&](const Part& part) { std::memcpy(&leader, part.peers[0], sizeof leader); });
  std::vector<int> leaders;
  flat->expose(call, std::as_bytes(std::span(&leader, 1)), sizeof leader, [&](const Part& part) {
    for (int r = 0; r < flat->size(); ++r) {
      int its_leader = 0;
      std::memcpy(&its_leader, part.peers[static_cast<size_t>(r)], sizeof its_leader);
      const auto node = static_cast<size_t>(std::find(leaders.begin(), leaders.end(), its_leader) - leaders.begin());
      if (node == leaders.size()) leaders.push_back(its_leader), map.ranks_of.emplace_back();
      map.node_of.push_back(node);
      map.ranks_of[node].push_back(r);
    }
  });
  map.node = map.node_of[static_cast<size_t>(me)];
  if (map.nodes() > 1) {
    state->network = flat->split(me == leader ? 0 : -1, 0, site);
    State::Later& later = state->later;
    later.unfinished = flat->unfinished();
    for (auto* of_node : {&later.tables, &later.terms, &later.results}) *of_node = local->split(0, 0, site);
    if (state->network)
      for (auto* of_leaders : {&later.first, &later.second}) *of_leaders = state->network->split(0, 0, site);
  }
  state->flat = std::move(flat), state->local = std::move(local);
  return state;
}

int Nodes::rank() const { return state_->flat->rank(); }
int Nodes::size() const { return state_->flat->size(); }
GlobalRank Nodes::global(GroupRank rank) const { return state_->flat->global(rank); }
std::string Nodes::description() const {
  const size_t nodes = state_->map.nodes();
  const std::string one = state_->processes ? " process" : " node",
                    several = state_->processes ? " processes" : " nodes";
  return state_->flat->description() + (state_->processes ? " in " : " on ") + std::to_string(nodes) +
         (nodes == 1 ? one : several);
}

std::string Nodes::choices(bool /*of_leaders*/) const {
  return state_->network ? state_->network->choices(true) : std::string();
}

std::byte* Nodes::board(size_t bytes) {
  State& state = *state_;
  if (bytes <= state.board_bytes) return state.board_at;
  state.board_bytes = std::bit_ceil(std::max(bytes, least_board));
  const StorageHandle last_board = state.board;  // others may read it until they come to this call
  if (state.local->rank() == 0) state.board = state.local->allocate_shown(state.board_bytes);
  const Bytes shown{state.board ? static_cast<const std::byte*>(state.board->data) : nullptr,
                    state.board ? state.board_bytes : 0};
  state.local->expose(describe(Verb::allocate_common, Site::here()), shown, state.board_bytes, [&](const Part& part) {
    if (part.first == 0) state.board_at = const_cast<std::byte*>(part.peers[0]);
  });
  return state.board_at;
}

void Nodes::step(const Call& call) {
  state_->local->expose(call, {}, 0, [](const Part&) {});
}

void Nodes::lead(const Call& call, const NodeSteps& steps, std::byte* board) {
  if (!state_->network) return;
  const auto swap = [&](const NodeSteps::Swap& swap) {
    state_->network->exchange(call, {board + swap.out.first, swap.out.size()}, swap.longest, swap.ranges(),
                              [&](const Part& part) { swap.put(part, board); });
  };
  swap(steps.swap);
  steps.fold_sums(board);
  if (steps.gathering) swap(*steps.gathering);
}

void Nodes::exchange(const Call& call, Bytes mine, size_t longest, Ranges ranges, Read read) {
  State& state = *state_;
  const std::vector<int>& here = state.map.here();
  if (state.map.nodes() == 1) return state.local->exchange(call, mine, longest, ranges, read);
  if (longest == 0) {
    step(call);
    if (state.network) state.network->expose(call, {}, 0, [](const Part&) {});
    return step(call);
  }
  const Crossing::Table own = Crossing::table_of(mine, ranges);
  std::vector<Crossing::Table> tables(here.size(), Crossing::Table(own.size()));
  state.local->expose(call, std::as_bytes(std::span(own)), own.size() * sizeof(Range), [&](const Part& part) {
    for (size_t i = 0; i < tables.size(); ++i)
      std::memcpy(reinterpret_cast<std::byte*>(tables[i].data()) + part.first, part.peers[i], part.last - part.first);
  });
  const auto me = static_cast<size_t>(state.local->rank());
  const NodeSteps steps = Crossing::steps(state.map, me, longest, tables);
  std::byte* const board = this->board(steps.board);
  for (const auto& [rank, bytes, at] : steps.copies)
    if (rank == me) std::copy_n(mine.data() + bytes.first, bytes.size(), board + at);
  step(call);
  lead(call, steps, board);
  const std::vector<const std::byte*> peers = steps.peers(board);
  std::vector<const std::byte*> at(peers);
  state.local->expose(call, mine, longest, [&](const Part& part) {
    for (size_t r = 0; r < peers.size(); ++r) at[r] = peers[r] + part.first;
    for (size_t i = 0; i < part.peers.size(); ++i) at[static_cast<size_t>(here[i])] = part.peers[i];
    read({part.first, part.last, at});
  });
}

void Nodes::reduce(const Call& call, Bytes mine, std::span<std::byte> result, const Reduction& reduction) {
  if (reduction.in_any_order && state_->flat->reduces_in_any_order(call, mine.size()))
    return state_->flat->reduce(call, mine, result, reduction);
  if (state_->map.nodes() == 1) return state_->local->reduce(call, mine, result, reduction);
  const size_t bytes = std::max(mine.size(), result.size());
  const std::optional<NodeSteps> steps = reduction_steps(state_->map, rank(), reduction, bytes);
  if (!steps) return Transport::reduce(call, mine, result, reduction);
  std::byte* const board = this->board(steps->board);
  Transport& local = *state_->local;
  std::vector<const std::byte*> peers(state_->map.here().size());
  local.expose(call, mine, bytes, [&](const Part& part) {  // each rank folds a share of the elements
    const Range share = Range{part.first, part.last}.slice(static_cast<size_t>(local.rank()), peers.size());
    for (size_t i = 0; i < peers.size(); ++i) peers[i] = part.peers[i] + (share.first - part.first);
    steps->fold_subtrees(state_->map, peers, share, board);
  });
  step(call);
  lead(call, *steps, board);
  step(call);
  steps->take(board, result);
}

std::shared_ptr<Unfinished> Nodes::unfinished() { return state_->flat->unfinished(); }

void Nodes::send(Call call, GroupRank to, Bytes bytes) { state_->flat->send(call, to, bytes); }
Call Nodes::receive(Call call, GroupRank from, std::span<std::byte> bytes) {
  return state_->flat->receive(call, from, bytes);
}

std::unique_ptr<Transport> Nodes::split(int color, int key, Site site) {
  std::unique_ptr<Transport> flat = state_->flat->split(color, key, site);
  std::unique_ptr<Transport> local = state_->local->split(color, key, site);
  if (!flat) return nullptr;
  return std::make_unique<Nodes>(join(std::move(flat), std::move(local), site, state_->processes));
}

std::string Nodes::busy_with(const std::string& what) { return state_->flat->busy_with(what); }
void Nodes::finalize(Site site) { state_->flat->finalize(site); }
StorageHandle Nodes::allocate_shown(size_t bytes) { return state_->local->allocate_shown(bytes); }

}  // namespace weft
