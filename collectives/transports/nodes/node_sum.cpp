// SPDX-License-Identifier: Apache-2.0
#include "weft/collectives/transports/nodes/node_sum.h"

#include <algorithm>
#include <utility>

namespace weft {

NodeSum::NodeSum(const NodeMap& map, const Transport::Reduction& reduction, size_t bytes)
    : map_(map),
      fold_(reduction.fold),
      read_slices_(reduction.slices.begin(), reduction.slices.end()),
      plan_(map, reduction, bytes),
      size_(size_of(fold_.dtype)),
      summed_(size_of(fold_.between_stages())),
      folded_(fold_.order.scans() ? summed_ : size_of(fold_.result_dtype)),
      slice_(plan_.slices[map.node]),
      my_results_(plan_.results_of[map.node]),
      to_fold_(plan_.gathers ? Range{0, plan_.results.size()} : my_results_) {
  const auto place_for = [&](size_t count) {
    return std::exchange(board_bytes_, (board_bytes_ + count + 63) / 64 * 64);
  };
  out_ = place_for(slices_of(map.node, {0, plan_.all_slices}).size());
  for (size_t node = 0; node < map.nodes(); ++node) {
    const Range slices = slices_of(node, {plan_.before[map.node], plan_.before[map.node] + slice_.size()});
    came_.push_back(node == map.node ? out_ + slices.first : place_for(slices.size()));
  }
  results_ = place_for(to_fold_.size() * slice_.size() * folded_);
  gathered_ = plan_.gathers ? place_for(my_results_.size() * plan_.elements * folded_) : results_;
  kept_ = place_for(plan_.kept.size() * plan_.elements * summed_);
}

// Where the subtrees of a node have these elements, in bytes of what leaves that node.
Transport::Range NodeSum::slices_of(size_t node, Range elements) const {
  const size_t bytes = plan_.subtrees[node].size() * summed_;
  return {elements.first * bytes, elements.last * bytes};
}

void NodeSum::fold_subtrees(std::span<const std::byte* const> peers, Range share, std::byte* board) const {
  std::vector<const std::byte*> of_ranks(map_.ranks());
  for (size_t i = 0; i < peers.size(); ++i) of_ranks[static_cast<size_t>(map_.here()[i])] = peers[i];
  const auto& subtrees = plan_.subtrees[map_.node];
  for (size_t tree = 0; tree < subtrees.size(); ++tree)
    for (size_t node = 0; node < (plan_.few ? 1 : map_.nodes()); ++node) {
      const Range slice = plan_.slices[node];
      const size_t place = subtrees.size() * plan_.before[node] + tree * slice.size();
      fold_subtree(of_ranks, subtrees[tree], slice, share, board + out_ + place * summed_);
    }
  for (size_t tree = 0; tree < plan_.kept.size(); ++tree)
    fold_subtree(of_ranks, plan_.kept[tree], {0, plan_.elements}, share,
                 board + kept_ + tree * plan_.elements * summed_);
}

// The share that is among these elements; the place is that of the first.
void NodeSum::fold_subtree(std::span<const std::byte* const> peers, std::span<const int> subtree, Range elements,
                           Range share, std::byte* place) const {
  const size_t first = std::max(share.first / size_, elements.first),
               last = std::min(share.last / size_, elements.last);
  if (first >= last) return;
  fold_.first_stage(subtree).write({share.first, share.last, peers}, static_cast<int64_t>(first - share.first / size_),
                                   static_cast<int64_t>(last - first), place + (first - elements.first) * summed_);
}

NodeSwap NodeSum::swap() const {
  const Range out{out_, out_ + slices_of(map_.node, {0, plan_.all_slices}).size()};
  NodeSwap swap{out, plan_.most_subtrees * plan_.all_slices * summed_, std::vector<Range>(map_.nodes()),
                std::vector<Range>(map_.nodes())};
  for (size_t node = 0; node < map_.nodes(); ++node) {
    if (node == map_.node) continue;
    swap.of_peers[node] = slices_of(node, {plan_.before[map_.node], plan_.before[map_.node] + slice_.size()});
    swap.by_peers[node] = slices_of(map_.node, {plan_.before[node], plan_.before[node] + plan_.slices[node].size()});
  }
  return swap;
}

void NodeSum::unpack(const Transport::Part& part, std::byte* board) const {
  for (size_t node = 0; node < map_.nodes(); ++node)
    if (node != map_.node)
      copy_common(part.of(node), part.peers[node],
                  slices_of(node, {plan_.before[map_.node], plan_.before[map_.node] + slice_.size()}),
                  board + came_[node]);
}

void NodeSum::fold_slice(std::byte* board) const {
  std::vector<const std::byte*> peers(map_.ranks());
  for (size_t i = to_fold_.first; i < to_fold_.last; ++i) {
    const SumPlan::Result& each = plan_.results[i];
    for (size_t tree = 0; tree < each.subtrees.size(); ++tree)
      peers[static_cast<size_t>(each.first_ranks[tree])] =
          board + came_[each.subtrees[tree].node] + each.subtrees[tree].index * slice_.size() * summed_;
    (fold_.order.scans() ? fold_.between(each.first_ranks, each.order)
                         : fold_.second_stage(each.first_ranks, each.sources.size()))
        .write({0, slice_.size() * summed_, peers}, 0, static_cast<int64_t>(slice_.size()),
               board + results_ + (i - to_fold_.first) * slice_.size() * folded_);
  }
}

NodeSwap NodeSum::gathering() const {
  NodeSwap swap{{results_, results_ + plan_.results.size() * slice_.size() * folded_}, 0, {}, {}};
  for (size_t node = 0; node < map_.nodes(); ++node) {
    const size_t theirs = plan_.slices[node].size() * folded_, ours = slice_.size() * folded_;
    swap.of_peers.push_back({my_results_.first * theirs, my_results_.last * theirs});
    swap.by_peers.push_back({plan_.results_of[node].first * ours, plan_.results_of[node].last * ours});
    swap.longest = std::max(swap.longest, plan_.results.size() * theirs);
  }
  return swap;
}

void NodeSum::unpack_gathered(const Transport::Part& part, std::byte* board) const {
  for (size_t node = 0; node < map_.nodes(); ++node)
    for (size_t i = my_results_.first; i < my_results_.last; ++i) {
      const size_t of_slice = plan_.slices[node].size() * folded_;
      const size_t first = (i - my_results_.first) * plan_.elements + plan_.slices[node].first;
      copy_common(part.of(node), part.peers[node], {i * of_slice, (i + 1) * of_slice},
                  board + gathered_ + first * folded_);
    }
}

void NodeSum::take(int rank, const std::byte* board, std::span<std::byte> result) const {
  if (fold_.order.scans()) return add_scan(plan_.scans[static_cast<size_t>(rank)], board, result);
  const size_t i = plan_.result_of[static_cast<size_t>(rank)];
  if (i == SumPlan::none || result.empty()) return;
  const Range there = plan_.gathers ? Range{0, plan_.elements} : slice_;
  const size_t from = read_slices_.empty() ? 0 : read_slices_[static_cast<size_t>(rank)].first / size_;
  const size_t place = (i - my_results_.first) * there.size() + (from - there.first);
  std::copy_n(board + gathered_ + place * folded_, result.size(), result.data());
}

void NodeSum::add_scan(const SumPlan::Scan& scan, const std::byte* board, std::span<std::byte> result) const {
  if (scan.first_ranks.empty()) return;
  std::vector<const std::byte*> peers(map_.ranks());
  const size_t bytes = plan_.elements * summed_;
  for (const size_t tree : scan.kept) peers[static_cast<size_t>(plan_.kept[tree][0])] = board + kept_ + tree * bytes;
  if (scan.result != SumPlan::none)
    peers[static_cast<size_t>(plan_.results[scan.result].sources[0])] =
        board + gathered_ + (scan.result - my_results_.first) * bytes;
  fold_.second_stage(scan.first_ranks, scan.terms, scan.order)
      .write({0, bytes, peers}, 0, static_cast<int64_t>(plan_.elements), result.data());
}

}  // namespace weft
