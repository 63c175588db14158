// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "weft/collectives/transports/nodes/node_steps.h"
#include "weft/collectives/transports/nodes/sum_plan.h"

namespace weft {
namespace {

using Range = ByteRange;

// On the board: the subtrees of this node; its slice of those of each other node; that slice folded; whole results;
// what scans of this node add to them.
class Reducing {
 public:
  Reducing(const NodeMap& map, std::shared_ptr<const SumPlan> plan, const Transport::Reduction& reduction)
      : map_(map),
        plan_(*plan),
        reduction_(reduction),
        fold_(reduction.fold),
        summed_(size_of(fold_.between_stages())),
        folded_(fold_.order.scans() ? summed_ : size_of(fold_.result_dtype)),
        slice_(plan_.slices[map.node]),
        my_results_(plan_.results_of[map.node]),
        to_fold_(plan_.gathers ? Range{0, plan_.results.size()} : my_results_) {
    made_.plan = std::move(plan);
  }

  NodeSteps steps(int rank) {
    const Range all{0, plan_.all_slices};
    const size_t out = place_for(subtrees_of(map_.node, all).size());
    fold_subtrees(out);
    swap(out, subtrees_of(map_.node, all).size());
    const size_t sums = place_for(to_fold_.size() * slice_.size() * folded_);
    fold_sums(sums);
    results_ = sums;
    if (plan_.gathers) gather(sums, place_for(my_results_.size() * plan_.elements * folded_));
    const size_t of_kept = plan_.elements * summed_, kept = place_for(plan_.kept.size() * of_kept);
    for (size_t i = 0; i < plan_.kept.size(); ++i)
      made_.subtrees.push_back({fold_.first_stage(plan_.kept[i]), {}, {0, plan_.elements}, kept + i * of_kept});
    fold_.order.scans() ? scan(plan_.scans[size_t(rank)], kept) : take(size_t(rank));
    return std::move(made_);
  }

 private:
  size_t place_for(size_t bytes) { return std::exchange(made_.board, (made_.board + bytes + 63) / 64 * 64); }
  // Where the subtrees of a node have these elements, in bytes of what leaves that node.
  Range subtrees_of(size_t node, Range elements) const {
    const size_t bytes = plan_.subtrees[node].size() * summed_;
    return {elements.first * bytes, elements.last * bytes};
  }
  Range slice_of(size_t node) const { return {plan_.before[node], plan_.before[node] + plan_.slices[node].size()}; }

  void fold_subtrees(size_t out) {
    const auto& subtrees = plan_.subtrees[map_.node];
    for (size_t tree = 0; tree < subtrees.size(); ++tree)
      for (size_t node = 0; node < (plan_.few ? 1 : map_.nodes()); ++node) {
        const size_t place = subtrees.size() * plan_.before[node] + tree * plan_.slices[node].size();
        made_.subtrees.push_back({fold_.first_stage(subtrees[tree]), {}, plan_.slices[node], out + place * summed_});
      }
  }

  // Gives each node its slice of all subtrees.
  void swap(size_t out, size_t bytes) {
    NodeSteps::Swap& swap = made_.swap;
    swap = {{out, out + bytes}, plan_.most_subtrees * plan_.all_slices * summed_, {}, {}, {}};
    for (size_t node = 0; node < map_.nodes(); ++node) {
      const bool here = node == map_.node;
      const Range of_node = subtrees_of(node, slice_of(map_.node));
      swap.of_peers.push_back(here ? Range{} : of_node);
      swap.by_peers.push_back(here ? Range{} : subtrees_of(map_.node, slice_of(node)));
      slices_at_.push_back(here ? out + of_node.first : place_for(of_node.size()));
      if (!here) swap.arrivals.push_back({node, of_node, slices_at_.back()});
    }
  }

  void fold_sums(size_t sums) {
    for (size_t i = to_fold_.first; i < to_fold_.last; ++i) {
      const SumPlan::Result& each = plan_.results[i];
      std::vector<size_t> terms;
      for (const auto& [node, index] : each.subtrees)
        terms.push_back(slices_at_[node] + index * slice_.size() * summed_);
      const Fold fold = fold_.order.scans() ? fold_.between(each.first_ranks, each.order)
                                            : fold_.second_stage(each.first_ranks, each.sources.size());
      made_.sums.push_back(
          {fold, std::move(terms), {0, slice_.size()}, sums + (i - to_fold_.first) * slice_.size() * folded_});
    }
  }

  // The folded slices of what the ranks of each node read.
  void gather(size_t sums, size_t results) {
    results_ = results;
    NodeSteps::Swap& swap = made_.gathering.emplace(NodeSteps::Swap{});
    swap.out = {sums, sums + plan_.results.size() * slice_.size() * folded_};
    for (size_t node = 0; node < map_.nodes(); ++node) {
      const size_t theirs = plan_.slices[node].size() * folded_, ours = slice_.size() * folded_;
      swap.of_peers.push_back({my_results_.first * theirs, my_results_.last * theirs});
      swap.by_peers.push_back({plan_.results_of[node].first * ours, plan_.results_of[node].last * ours});
      swap.longest = std::max(swap.longest, plan_.results.size() * theirs);
      for (size_t i = my_results_.first; i < my_results_.last; ++i)
        swap.arrivals.push_back({node, {i * theirs, (i + 1) * theirs}, result_at(i, plan_.slices[node].first)});
    }
  }
  // An element of a result, among those that are whole on the board.
  size_t result_at(size_t i, size_t element) const {
    const Range there = plan_.gathers ? Range{0, plan_.elements} : slice_;
    return results_ + ((i - my_results_.first) * there.size() + (element - there.first)) * folded_;
  }

  void take(size_t rank) {
    const Range read = reduction_.slices.empty() ? Range{0, plan_.elements} : reduction_.slices[rank];
    if (plan_.result_of[rank] == SumPlan::none || read.size() == 0) return;
    made_.result = result_at(plan_.result_of[rank], read.first / size_of(fold_.dtype));
  }

  // A rank's scan: what it adds of its own node's terms to the result of those before it, or after it.
  void scan(const SumPlan::Scan& scan, size_t kept) {
    if (scan.first_ranks.empty()) return;
    std::vector<size_t> terms;
    for (const int first : scan.first_ranks) {
      const auto own =
          std::find_if(scan.kept.begin(), scan.kept.end(), [&](size_t i) { return plan_.kept[i][0] == first; });
      terms.push_back(own == scan.kept.end() ? result_at(scan.result, 0) : kept + *own * plan_.elements * summed_);
    }
    made_.scan = {
        fold_.second_stage(scan.first_ranks, scan.terms, scan.order), std::move(terms), {0, plan_.elements}, 0};
  }

  const NodeMap& map_;
  const SumPlan& plan_;
  const Transport::Reduction& reduction_;
  const Fold& fold_;
  const size_t summed_, folded_;  // of an element: of a subtree, a result
  const Range slice_, my_results_, to_fold_;
  std::vector<size_t> slices_at_;  // of this node's slice of the subtrees of each node
  size_t results_ = 0;
  NodeSteps made_;
};

}  // namespace

std::optional<NodeSteps> reduction_steps(const NodeMap& map, int rank, const Transport::Reduction& reduction,
                                         size_t bytes) {
  const auto plan = std::make_shared<const SumPlan>(map, reduction, bytes);
  if (!plan->adds()) return {};
  return Reducing(map, plan, reduction).steps(rank);
}

}  // namespace weft
