// SPDX-License-Identifier: Apache-2.0
// Reductions between nodes. The ranks of a node fold the subtrees that have all their ranks there, each its share of
// the elements. Then every node receives its slice of the subtrees of all others and folds these. A slice is what the
// ranks of the node read. Where they read everything, all slices are of about equal size, and the nodes gather them.
#include <algorithm>
#include <utility>

#include "weft/collectives/fold.h"
#include "weft/collectives/transports/nodes/nodes.h"

namespace weft {
namespace {

using Range = Transport::Range;

// A list with each value once. Returns where it is.
template <class T> size_t put_once(std::vector<T>& list, const T& value) {
  const auto place = std::find(list.begin(), list.end(), value);
  if (place == list.end()) return list.push_back(value), list.size() - 1;
  return static_cast<size_t>(place - list.begin());
}

// Copies what is in both ranges of bytes; the data and the place are those of the ranges' beginnings.
void copy_common(Range from, const std::byte* data, Range to, std::byte* place) {
  const size_t first = std::max(from.first, to.first), last = std::min(from.last, to.last);
  if (first < last) std::copy_n(data + (first - from.first), last - first, place + (first - to.first));
}

}  // namespace

// What is folded where. All ranks of the group make the same plan.
struct Nodes::Plan {
  struct Subtree {
    size_t node, index;  // in `subtrees` of the node
  };
  struct Result {
    std::vector<int> sources;
    std::vector<Subtree> subtrees;
    std::vector<int> first_ranks;  // of the subtrees
  };

  Plan(const State& state, const Sums& sums, size_t bytes);

  std::vector<Result> results;    // each once, however many ranks read it
  std::vector<size_t> result_of;  // of each rank, or `none`
  static constexpr size_t none = ~size_t{0};
  std::vector<Range> results_of;                        // which results the ranks of each node read
  std::vector<std::vector<std::vector<int>>> subtrees;  // of each node: their ranks
  std::vector<Range> slices;                            // of each node, in elements
  std::vector<size_t> before;                           // the elements of all subtrees before a node's slice
  size_t most_subtrees = 0, elements = 0, all_slices = 0;
  bool few = false;      // elements: then every node folds all of them, which takes less time than gathering slices
  bool gathers = false;  // whether a slice is only a part of what the ranks of the node read

 private:
  void add_subtrees(const State& state, Result& result, std::span<const int> ranks);
};

void Nodes::Plan::add_subtrees(const State& state, Result& result, std::span<const int> ranks) {
  const size_t node = state.node_of[static_cast<size_t>(ranks[0])];
  if (std::all_of(ranks.begin(), ranks.end(), [&](int r) { return state.node_of[static_cast<size_t>(r)] == node; })) {
    result.subtrees.push_back({node, put_once(subtrees[node], {ranks.begin(), ranks.end()})});
    result.first_ranks.push_back(ranks[0]);
    return;
  }
  const size_t half = first_half(ranks);
  add_subtrees(state, result, ranks.first(half));
  add_subtrees(state, result, ranks.subspan(half));
}

Nodes::Plan::Plan(const State& state, const Sums& sums, size_t bytes)
    : result_of(state.node_of.size(), none),
      subtrees(state.ranks_of.size()),
      elements(bytes / size_of(sums.fold.dtype)) {
  const int n = static_cast<int>(state.node_of.size());
  const size_t nodes = state.ranks_of.size();
  std::vector<std::vector<int>> distinct;
  for (const std::vector<int>& readers : state.ranks_of) {
    Range& of_node = results_of.emplace_back(Range{none, 0});
    for (const int reader : readers) {
      std::vector<int> sources;
      for (int source = 0; source < n; ++source)
        if (sums.reads(reader, source)) sources.push_back(source);
      if (sources.empty()) continue;
      const size_t i = result_of[static_cast<size_t>(reader)] = put_once(distinct, sources);
      of_node = {std::min(of_node.first, i), std::max(of_node.last, i + 1)};
    }
    if (of_node.first == none) of_node = {0, 0};
  }
  for (std::vector<int>& sources : distinct) {
    results.push_back({std::move(sources), {}, {}});
    add_subtrees(state, results.back(), results.back().sources);
  }
  for (const auto& of_node : subtrees) most_subtrees = std::max(most_subtrees, of_node.size());
  few = sums.slices.empty() && nodes * most_subtrees * bytes <= 1024;
  gathers = sums.slices.empty() && !few;
  for (size_t node = 0; node < nodes; ++node) {
    Range slice = few ? Range{0, elements} : Range{0, elements}.slice(node, nodes);
    if (!sums.slices.empty()) {
      slice = {elements, 0};
      for (const int reader : state.ranks_of[node]) {
        const Range read = sums.slices[static_cast<size_t>(reader)];
        if (read.size() == 0) continue;
        slice.first = std::min(slice.first, read.first / size_of(sums.fold.dtype));
        slice.last = std::max(slice.last, read.last / size_of(sums.fold.dtype));
      }
      if (slice.first > slice.last) slice = {0, 0};
    }
    before.push_back(few ? 0 : all_slices);
    all_slices = before.back() + slice.size();
    slices.push_back(slice);
  }
}

bool Nodes::combine_near_first(const Call& call, Bytes mine, std::span<std::byte> result, const Sums& sums) {
  State& state = *state_;
  if (state.ranks_of.size() == 1) return false;
  const Plan plan(state, sums, mine.size());
  if (std::all_of(plan.results.begin(), plan.results.end(), [](const auto& each) { return each.sources.size() < 2; }))
    return false;  // nothing is added
  const size_t nodes = state.ranks_of.size(), here = state.node, n = state.node_of.size();
  const size_t size = size_of(sums.fold.dtype), summed = size_of(sums.fold.between_stages());
  const size_t folded = size_of(sums.fold.result_dtype);
  const std::vector<int>& my_ranks = state.ranks_of[here];
  const Range slice = plan.slices[here], my_results = plan.results_of[here];
  const Range to_fold = plan.gathers ? Range{0, plan.results.size()} : my_results;

  // Where everything is on the board.
  size_t used = 0;
  const auto place_for = [&](size_t bytes) { return std::exchange(used, (used + bytes + 63) / 64 * 64); };
  const size_t out = place_for(plan.subtrees[here].size() * plan.all_slices * summed);
  std::vector<size_t> came(nodes, 0);  // the slices of this node of all subtrees of each other node
  for (size_t node = 0; node < nodes; ++node) {
    const size_t theirs = plan.subtrees[node].size();
    came[node] = node == here ? out + theirs * plan.before[here] * summed : place_for(theirs * slice.size() * summed);
  }
  const size_t results = place_for(to_fold.size() * slice.size() * folded);
  const size_t gathered = plan.gathers ? place_for(my_results.size() * plan.elements * folded) : results;
  std::byte* const board = this->board(used);
  std::vector<const std::byte*> peers(n);

  // This rank's share of the subtrees of its node.
  state.local->expose(call, mine, mine.size(), [&](const Part& part) {
    const Range share = Range{part.first, part.last}.slice(static_cast<size_t>(state.local->rank()), my_ranks.size());
    for (size_t i = 0; i < my_ranks.size(); ++i)
      peers[static_cast<size_t>(my_ranks[i])] = part.peers[i] + (share.first - part.first);
    for (size_t tree = 0; tree < plan.subtrees[here].size(); ++tree)
      for (size_t node = 0; node < nodes; ++node) {
        const Range to = plan.slices[node];
        const size_t first = std::max(share.first / size, to.first), last = std::min(share.last / size, to.last);
        const size_t place = plan.subtrees[here].size() * plan.before[node] + tree * to.size() + (first - to.first);
        if (first < last)
          sums.fold.first_stage(plan.subtrees[here][tree])
              .write({share.first, share.last, peers}, static_cast<int64_t>(first - share.first / size),
                     static_cast<int64_t>(last - first), board + out + place * summed);
        if (plan.few) break;  // the same for all nodes
      }
  });
  step(call);

  if (state.network) {
    std::vector<Range> of_peers(nodes), by_peers(nodes);
    for (size_t node = 0; node < nodes; ++node) {
      if (node == here) continue;
      const size_t theirs = plan.subtrees[node].size(), ours = plan.subtrees[here].size();
      of_peers[node] = Range{0, theirs * plan.all_slices * summed}.piece(theirs * plan.before[here] * summed,
                                                                         theirs * slice.size() * summed);
      by_peers[node] = Range{0, ours * plan.all_slices * summed}.piece(ours * plan.before[node] * summed,
                                                                       ours * plan.slices[node].size() * summed);
    }
    state.network->exchange(call, {board + out, plan.subtrees[here].size() * plan.all_slices * summed},
                            plan.most_subtrees * plan.all_slices * summed, {of_peers, by_peers}, [&](const Part& part) {
                              for (size_t node = 0; node < nodes; ++node)
                                copy_common(part.of(node), part.peers[node], of_peers[node], board + came[node]);
                            });
    for (size_t i = to_fold.first; i < to_fold.last; ++i) {
      const Plan::Result& each = plan.results[i];
      for (size_t tree = 0; tree < each.subtrees.size(); ++tree)
        peers[static_cast<size_t>(each.first_ranks[tree])] =
            board + came[each.subtrees[tree].node] + each.subtrees[tree].index * slice.size() * summed;
      sums.fold.second_stage(each.first_ranks, each.sources.size())
          .write({0, slice.size() * summed, peers}, 0, static_cast<int64_t>(slice.size()),
                 board + results + (i - to_fold.first) * slice.size() * folded);
    }
    if (plan.gathers) {
      size_t longest = 0;
      for (size_t node = 0; node < nodes; ++node) {
        const Range theirs = plan.results_of[node];
        const size_t of_slice = plan.slices[node].size() * folded;
        of_peers[node] = {my_results.first * of_slice, my_results.last * of_slice};
        by_peers[node] = {theirs.first * slice.size() * folded, theirs.last * slice.size() * folded};
        longest = std::max(longest, plan.results.size() * of_slice);
      }
      state.network->exchange(call, {board + results, plan.results.size() * slice.size() * folded}, longest,
                              {of_peers, by_peers}, [&](const Part& part) {
                                for (size_t node = 0; node < nodes; ++node)
                                  for (size_t i = my_results.first; i < my_results.last; ++i) {
                                    const size_t of_slice = plan.slices[node].size() * folded;
                                    const size_t first =
                                        (i - my_results.first) * plan.elements + plan.slices[node].first;
                                    copy_common(part.of(node), part.peers[node], {i * of_slice, (i + 1) * of_slice},
                                                board + gathered + first * folded);
                                  }
                              });
    }
  }
  step(call);
  const size_t i = plan.result_of[static_cast<size_t>(rank())];
  if (i == Plan::none) return true;
  const size_t first_element = plan.gathers ? 0 : slice.first;
  const size_t elements = plan.gathers ? plan.elements : slice.size();
  const size_t read_from = sums.slices.empty() ? 0 : sums.slices[static_cast<size_t>(rank())].first / size;
  const size_t place = (i - my_results.first) * elements + (read_from - std::min(read_from, first_element));
  std::copy_n(board + gathered + place * folded, result.size(), result.data());
  return true;
}

}  // namespace weft
