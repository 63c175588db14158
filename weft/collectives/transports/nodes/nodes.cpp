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
      if (node == leaders.size()) leaders.push_back(its_leader), state->ranks_of.emplace_back();
      state->node_of.push_back(node);
      state->ranks_of[node].push_back(r);
    }
  });
  state->node = state->node_of[static_cast<size_t>(me)];
  for (const auto& ranks : state->ranks_of) state->most_ranks = std::max(state->most_ranks, ranks.size());
  if (leaders.size() > 1) state->network = flat->split(me == leader ? 0 : -1, 0, site);
  state->flat = std::move(flat), state->local = std::move(local);
  return state;
}

int Nodes::rank() const { return state_->flat->rank(); }
int Nodes::size() const { return state_->flat->size(); }
GlobalRank Nodes::global(GroupRank rank) const { return state_->flat->global(rank); }
std::string Nodes::description() const {
  const size_t nodes = state_->ranks_of.size();
  const std::string one = state_->processes ? " process" : " node",
                    several = state_->processes ? " processes" : " nodes";
  return state_->flat->description() + (state_->processes ? " in " : " on ") + std::to_string(nodes) +
         (nodes == 1 ? one : several);
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

// What crosses between nodes in an exchange. For each node and each rank there, the bytes that any rank of the node
// reads of it lie one behind the other on the boards of both nodes, none of them twice. What leaves for a node has its
// place on the board for it, of the same size for each, so that its reader knows where it begins.
class Nodes::Crossing {
 public:
  Crossing(Nodes& nodes, const Call& call, Bytes mine, size_t longest, const Ranges& ranges)
      : state_(*nodes.state_), longest_(longest), all_(ranges.all()), n_(state_.node_of.size()) {
    std::vector<Range> own(1 + (all_ ? 0 : 2 * n_));
    own[0] = {0, mine.size()};
    if (!all_) {
      std::copy(ranges.of_peers.begin(), ranges.of_peers.end(), own.begin() + 1);
      std::copy(ranges.by_peers.begin(), ranges.by_peers.end(), own.begin() + 1 + static_cast<ptrdiff_t>(n_));
    }
    tables_.resize(ranks().size(), std::vector<Range>(own.size()));
    state_.local->expose(call, std::as_bytes(std::span(own)), own.size() * sizeof(Range), [&](const Part& part) {
      for (size_t i = 0; i < tables_.size(); ++i)
        std::memcpy(reinterpret_cast<std::byte*>(tables_[i].data()) + part.first, part.peers[i],
                    part.last - part.first);
    });
    came_from_.resize(n_);
    size_t at = out_bytes();
    for (size_t node = 0; node < state_.ranks_of.size(); ++node) {
      node_came_.push_back({at, at});
      for (const int source : state_.ranks_of[node]) {
        if (node == state_.node) continue;
        Pieces& pieces = came_from_[static_cast<size_t>(source)];
        pieces = {at, merged([&](size_t reader) { return read_by(reader, source); })};
        at += pieces.bytes();
      }
      node_came_[node].last = at;
    }
    board_ = nodes.board(at);
  }

  // Puts on the board what leaves this rank.
  void pack(Bytes mine) {
    const auto me = static_cast<size_t>(state_.local->rank());
    for (size_t node = 0; node < state_.ranks_of.size(); ++node) {
      if (node == state_.node) continue;
      std::byte* place = board_ + out(node).first;
      for (size_t i = 0; i <= me; ++i)
        for (const Range& piece : leaving(i, node)) {
          if (const size_t last = std::min(piece.last, mine.size()); i == me && piece.first < last)
            std::copy_n(mine.data() + piece.first, last - piece.first, place);
          place += piece.size();
        }
      if (all_) return;  // one place for all nodes
    }
  }

  // On the leader.
  void cross(const Call& call) {
    const size_t nodes = state_.ranks_of.size();
    std::vector<Range> of_peers(nodes), by_peers(nodes);
    for (size_t node = 0; node < nodes; ++node) {
      if (node == state_.node) continue;
      const size_t theirs = all_ ? 0 : state_.node * stride();
      of_peers[node] = {theirs, theirs + node_came_[node].size()};
      by_peers[node] = {out(node).first, out(node).first};
      for (size_t i = 0; i < ranks().size(); ++i)
        for (const Range& piece : leaving(i, node)) by_peers[node].last += piece.size();
    }
    state_.network->exchange(call, {board_, out_bytes()}, out_bytes(), {of_peers, by_peers}, [&](const Part& part) {
      for (size_t node = 0; node < nodes; ++node) {
        const Range here = part.of(node);
        const size_t first = std::max(here.first, of_peers[node].first),
                     last = std::min(here.last, of_peers[node].last);
        if (first < last)
          std::copy_n(part.peers[node] + (first - here.first), last - first,
                      board_ + node_came_[node].first + (first - of_peers[node].first));
      }
    });
  }

  // Where byte 0 of a rank on another node would be, for the bytes that this rank reads of it.
  const std::byte* bytes_of(size_t source) const {
    const Range mine = read_by(static_cast<size_t>(state_.local->rank()), static_cast<int>(source));
    const std::byte* place = board_ + came_from_[source].at;
    for (const Range& piece : came_from_[source].pieces) {
      if (mine.first <= piece.last && mine.first >= piece.first) return place - piece.first;
      place += piece.size();
    }
    return place;
  }

 private:
  struct Pieces {
    size_t at = 0;  // on the board
    std::vector<Range> pieces;
    size_t bytes() const {
      size_t sum = 0;
      for (const Range& piece : pieces) sum += piece.size();
      return sum;
    }
  };
  const std::vector<int>& ranks() const { return state_.ranks_of[state_.node]; }
  // What the i-th rank of this node reads of a rank, and what a rank reads of the i-th.
  Range read_by(size_t i, int source) const {
    return all_ ? Range{0, longest_} : tables_[i][1 + static_cast<size_t>(source)];
  }
  Range read_of(size_t i, int reader) const {
    return all_ ? Range{0, longest_} : tables_[i][1 + n_ + static_cast<size_t>(reader)];
  }
  // The union of what the ranks of this node read.
  template <class Read> std::vector<Range> merged(const Read& read_of_rank) const {
    std::vector<Range> each;
    for (size_t i = 0; i < ranks().size(); ++i) each.push_back(read_of_rank(i));
    return merged(each);
  }
  static std::vector<Range> merged(std::vector<Range> ranges) {
    std::erase_if(ranges, [](const Range& range) { return range.size() == 0; });
    std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) { return a.first < b.first; });
    std::vector<Range> pieces;
    for (const Range& range : ranges) {
      if (pieces.empty() || range.first > pieces.back().last) pieces.push_back(range);
      pieces.back().last = std::max(pieces.back().last, range.last);
    }
    return pieces;
  }
  std::vector<Range> leaving(size_t i, size_t node) const {
    std::vector<Range> each;
    for (const int reader : state_.ranks_of[node]) each.push_back(read_of(i, reader));
    return merged(each);
  }
  size_t stride() const { return state_.most_ranks * longest_; }
  Range out(size_t node) const {
    const size_t first = all_ ? 0 : node * stride();
    return {first, first + stride()};
  }
  size_t out_bytes() const { return (all_ ? 1 : state_.ranks_of.size()) * stride(); }

  State& state_;
  const size_t longest_;
  const bool all_;
  const size_t n_;
  std::vector<std::vector<Range>> tables_;  // of each rank of this node: what it exposes, reads, and others read of it
  std::vector<Pieces> came_from_;           // of each rank on another node
  std::vector<Range> node_came_;            // on the board, from each node
  std::byte* board_ = nullptr;
};

void Nodes::exchange(const Call& call, Bytes mine, size_t longest, Ranges ranges, Read read) {
  State& state = *state_;
  if (state.ranks_of.size() == 1) return state.local->exchange(call, mine, longest, ranges, read);
  if (longest == 0) {
    step(call);
    if (state.network) state.network->expose(call, {}, 0, [](const Part&) {});
    return step(call);
  }
  Crossing crossing(*this, call, mine, longest, ranges);
  crossing.pack(mine);
  step(call);
  if (state.network) crossing.cross(call);
  std::vector<const std::byte*> peers(state.node_of.size());
  for (size_t r = 0; r < peers.size(); ++r)
    if (state.node_of[r] != state.node) peers[r] = crossing.bytes_of(r);
  std::vector<const std::byte*> at(peers);
  state.local->expose(call, mine, longest, [&](const Part& part) {
    for (size_t r = 0; r < peers.size(); ++r) at[r] = peers[r] + part.first;
    for (size_t i = 0; i < part.peers.size(); ++i)
      at[static_cast<size_t>(state.ranks_of[state.node][i])] = part.peers[i];
    read({part.first, part.last, at});
  });
}

std::unique_ptr<Transport::Started> Nodes::start(const Call& call, Tensor mine, size_t longest, Ranges ranges) {
  return state_->flat->start(call, std::move(mine), longest, ranges);
}

void Nodes::combine(const Call& call, Bytes mine, std::span<std::byte> result, Fold fold) {
  (state_->ranks_of.size() == 1 ? state_->local : state_->flat)->combine(call, mine, result, fold);
}

bool Nodes::combine_for_each(const Call& call, Bytes mine, std::span<std::byte> result, const Folds& folds) {
  return state_->ranks_of.size() > 1 && state_->flat->combine_for_each(call, mine, result, folds);
}

bool Nodes::combine_in_any_order(const Call& call, Bytes mine, std::span<std::byte> result) {
  return state_->flat->combine_in_any_order(call, mine, result);
}

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
