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

// One reduction, in the steps of its ranks.
class Nodes::Reduction {
 public:
  Reduction(Nodes& nodes, const Call& call, const Sums& sums, const Plan& plan)
      : state_(*nodes.state_),
        call_(call),
        sums_(sums),
        plan_(plan),
        slice_(plan.slices[state_.node]),
        my_results_(plan.results_of[state_.node]),
        to_fold_(plan.gathers ? Range{0, plan.results.size()} : my_results_),
        peers_(state_.node_of.size()) {
    size_t used = 0;
    const auto place_for = [&](size_t bytes) { return std::exchange(used, (used + bytes + 63) / 64 * 64); };
    out_ = place_for(slices_of(state_.node, {0, plan.all_slices}).size());
    for (size_t node = 0; node < plan.slices.size(); ++node) {
      const Range slices = slices_of(node, {plan.before[state_.node], plan.before[state_.node] + slice_.size()});
      came_.push_back(node == state_.node ? out_ + slices.first : place_for(slices.size()));
    }
    results_ = place_for(to_fold_.size() * slice_.size() * folded_);
    gathered_ = plan.gathers ? place_for(my_results_.size() * plan.elements * folded_) : results_;
    board_ = nodes.board(used);
  }

  // This rank's share of the subtrees of its node.
  void fold_subtrees(Bytes mine) {
    const std::vector<int>& ranks = state_.ranks_of[state_.node];
    state_.local->expose(call_, mine, mine.size(), [&](const Part& part) {
      const Range share = Range{part.first, part.last}.slice(static_cast<size_t>(state_.local->rank()), ranks.size());
      for (size_t i = 0; i < ranks.size(); ++i)
        peers_[static_cast<size_t>(ranks[i])] = part.peers[i] + (share.first - part.first);
      for (size_t tree = 0; tree < plan_.subtrees[state_.node].size(); ++tree)
        for (size_t node = 0; node < (plan_.few ? 1 : plan_.slices.size()); ++node) fold_subtree(tree, node, share);
    });
  }

  // The leaders give each node its slice of all subtrees.
  void swap_slices() {
    std::vector<Range> of_peers(plan_.slices.size()), by_peers(of_peers);
    for (size_t node = 0; node < of_peers.size(); ++node) {
      if (node == state_.node) continue;
      of_peers[node] = slices_of(node, {plan_.before[state_.node], plan_.before[state_.node] + slice_.size()});
      by_peers[node] = slices_of(state_.node, {plan_.before[node], plan_.before[node] + plan_.slices[node].size()});
    }
    state_.network->exchange(call_, {board_ + out_, slices_of(state_.node, {0, plan_.all_slices}).size()},
                             plan_.most_subtrees * plan_.all_slices * summed_, {of_peers, by_peers},
                             [&](const Part& part) {
                               for (size_t node = 0; node < of_peers.size(); ++node)
                                 copy_common(part.of(node), part.peers[node], of_peers[node], board_ + came_[node]);
                             });
  }

  void fold_slice() {
    for (size_t i = to_fold_.first; i < to_fold_.last; ++i) {
      const Plan::Result& each = plan_.results[i];
      for (size_t tree = 0; tree < each.subtrees.size(); ++tree)
        peers_[static_cast<size_t>(each.first_ranks[tree])] =
            board_ + came_[each.subtrees[tree].node] + each.subtrees[tree].index * slice_.size() * summed_;
      sums_.fold.second_stage(each.first_ranks, each.sources.size())
          .write({0, slice_.size() * summed_, peers_}, 0, static_cast<int64_t>(slice_.size()),
                 board_ + results_ + (i - to_fold_.first) * slice_.size() * folded_);
    }
  }

  // The leaders gather the folded slices of what their ranks read.
  void gather() {
    std::vector<Range> of_peers, by_peers;
    size_t longest = 0;
    for (size_t node = 0; node < plan_.slices.size(); ++node) {
      const size_t theirs = plan_.slices[node].size() * folded_, ours = slice_.size() * folded_;
      of_peers.push_back({my_results_.first * theirs, my_results_.last * theirs});
      by_peers.push_back({plan_.results_of[node].first * ours, plan_.results_of[node].last * ours});
      longest = std::max(longest, plan_.results.size() * theirs);
    }
    const Bytes mine{board_ + results_, plan_.results.size() * slice_.size() * folded_};
    state_.network->exchange(call_, mine, longest, {of_peers, by_peers}, [&](const Part& part) {
      for (size_t node = 0; node < of_peers.size(); ++node)
        for (size_t i = my_results_.first; i < my_results_.last; ++i) {
          const size_t of_slice = plan_.slices[node].size() * folded_;
          const size_t first = (i - my_results_.first) * plan_.elements + plan_.slices[node].first;
          copy_common(part.of(node), part.peers[node], {i * of_slice, (i + 1) * of_slice},
                      board_ + gathered_ + first * folded_);
        }
    });
  }

  // Copies what this rank reads.
  void take(int rank, std::span<std::byte> result) const {
    const size_t i = plan_.result_of[static_cast<size_t>(rank)];
    if (i == Plan::none || result.empty()) return;
    const Range there = plan_.gathers ? Range{0, plan_.elements} : slice_;
    const size_t from = sums_.slices.empty() ? 0 : sums_.slices[static_cast<size_t>(rank)].first / size_;
    const size_t place = (i - my_results_.first) * there.size() + (from - there.first);
    std::copy_n(board_ + gathered_ + place * folded_, result.size(), result.data());
  }

 private:
  // Where the subtrees of a node have these elements, in bytes of what leaves that node.
  Range slices_of(size_t node, Range elements) const {
    const size_t bytes = plan_.subtrees[node].size() * summed_;
    return {elements.first * bytes, elements.last * bytes};
  }

  // This rank's share, in bytes of the ranks' tensors, of what a subtree has for a node.
  void fold_subtree(size_t tree, size_t node, Range share) {
    const Range to = plan_.slices[node];
    const size_t first = std::max(share.first / size_, to.first), last = std::min(share.last / size_, to.last);
    if (first >= last) return;
    const size_t place =
        plan_.subtrees[state_.node].size() * plan_.before[node] + tree * to.size() + (first - to.first);
    sums_.fold.first_stage(plan_.subtrees[state_.node][tree])
        .write({share.first, share.last, peers_}, static_cast<int64_t>(first - share.first / size_),
               static_cast<int64_t>(last - first), board_ + out_ + place * summed_);
  }

  State& state_;
  const Call& call_;
  const Sums& sums_;
  const Plan& plan_;
  const size_t size_ = size_of(sums_.fold.dtype), summed_ = size_of(sums_.fold.between_stages()),
               folded_ = size_of(sums_.fold.result_dtype);  // of an element: of a term, a subtree, a result
  const Range slice_, my_results_, to_fold_;
  std::vector<const std::byte*> peers_;
  // On the board: the subtrees of this node; its slice of those of each node; that slice folded; whole results.
  size_t out_ = 0, results_ = 0, gathered_ = 0;
  std::vector<size_t> came_;
  std::byte* board_ = nullptr;
};

bool Nodes::combine_near_first(const Call& call, Bytes mine, std::span<std::byte> result, const Sums& sums) {
  if (state_->ranks_of.size() == 1) return false;
  const Plan plan(*state_, sums, mine.size());
  if (std::all_of(plan.results.begin(), plan.results.end(), [](const auto& each) { return each.sources.size() < 2; }))
    return false;  // nothing is added
  Reduction reduction(*this, call, sums, plan);
  reduction.fold_subtrees(mine);
  step(call);
  if (state_->network) {
    reduction.swap_slices();
    reduction.fold_slice();
    if (plan.gathers) reduction.gather();
  }
  step(call);
  reduction.take(rank(), result);
  return true;
}

}  // namespace weft
