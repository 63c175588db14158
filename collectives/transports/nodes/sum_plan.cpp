// SPDX-License-Identifier: Apache-2.0
#include "weft/collectives/transports/nodes/sum_plan.h"

#include <algorithm>
#include <numeric>

#include "weft/collectives/transports/message_schedule.h"

namespace weft {
namespace {

// A list with each value once. Returns where it is.
template <class T> size_t put_once(std::vector<T>& list, const T& value) {
  const auto place = std::find(list.begin(), list.end(), value);
  if (place == list.end()) return list.push_back(value), list.size() - 1;
  return static_cast<size_t>(place - list.begin());
}

// The subtrees of these ranks that have all their ranks on one node.
void find_subtrees(const NodeMap& map, std::span<const int> ranks, std::vector<std::span<const int>>& found) {
  const auto node_of = [&](int r) { return map.node_of[static_cast<size_t>(r)]; };
  if (std::all_of(ranks.begin(), ranks.end(), [&](int r) { return node_of(r) == node_of(ranks[0]); }))
    return found.push_back(ranks);
  const size_t half = first_half(ranks);
  find_subtrees(map, ranks.first(half), found);
  find_subtrees(map, ranks.subspan(half), found);
}

std::vector<int> sources_of(int reader, std::span<const int> ranks, FunctionRef<bool(int, int)> reads) {
  std::vector<int> sources;
  std::copy_if(ranks.begin(), ranks.end(), std::back_inserter(sources), [&](int r) { return reads(reader, r); });
  return sources;
}

}  // namespace

// Returns its place.
size_t SumPlan::add_result(const NodeMap& map, size_t reading_node, std::span<const int> sources, FoldOrder order) {
  const auto same = std::find_if(results.begin(), results.end(), [&](const Result& each) {
    return std::equal(each.sources.begin(), each.sources.end(), sources.begin(), sources.end());
  });
  const auto place = static_cast<size_t>(same - results.begin());
  Range& read = results_of[reading_node];
  read =
      read.size() == 0 ? Range{place, place + 1} : Range{std::min(read.first, place), std::max(read.last, place + 1)};
  if (same != results.end()) return place;
  Result& result = results.emplace_back(Result{{sources.begin(), sources.end()}, {}, {}, order});
  std::vector<std::span<const int>> on_nodes;
  for (const std::span<const int> part : order.tree_parts(sources)) find_subtrees(map, part, on_nodes);
  for (const std::span<const int> ranks : on_nodes) {
    const size_t node = map.node_of[static_cast<size_t>(ranks[0])];
    result.subtrees.push_back({node, put_once(subtrees[node], {ranks.begin(), ranks.end()})});
    result.first_ranks.push_back(ranks[0]);
  }
  return place;
}

// What all ranks of a subtree of a node read in a scan.
void SumPlan::add_scan(const NodeMap& map, FunctionRef<bool(int, int)> reads, FoldOrder order,
                       std::span<const int> everyone, std::span<const int> subtree) {
  const bool before = order.kind == FoldOrder::Kind::before;
  const int nearest = before ? subtree.front() : subtree.back();
  const auto rank = static_cast<size_t>(nearest);
  const std::span<const int> outside = before ? everyone.first(rank) : everyone.subspan(rank + 1);
  const size_t node = map.node_of[rank];
  const size_t result = outside.empty() ? none : add_result(map, node, outside, order.to(nearest));
  if (node != map.node) return;
  for (const int reader : subtree) {
    Scan& scan = scans[static_cast<size_t>(reader)];
    const std::vector<int> sources = sources_of(reader, subtree, reads);
    scan = {result, {}, {}, outside.size() + sources.size(), order.to(reader)};
    if (!outside.empty()) scan.first_ranks.push_back(outside[0]);
    for (const std::span<const int> part : scan.order.tree_parts(sources)) {
      scan.kept.push_back(put_once(kept, {part.begin(), part.end()}));
      scan.first_ranks.push_back(part[0]);
    }
    std::sort(scan.first_ranks.begin(), scan.first_ranks.end());
  }
}

SumPlan::SumPlan(const NodeMap& map, const Transport::Reduction& reduction, size_t bytes)
    : result_of(map.ranks(), none),
      results_of(map.nodes()),
      subtrees(map.nodes()),
      scans(map.ranks()),
      elements(bytes / size_of(reduction.fold.dtype)) {
  std::vector<int> everyone(map.ranks());
  std::iota(everyone.begin(), everyone.end(), 0);
  if (reduction.fold.order.scans()) {
    std::vector<std::span<const int>> on_nodes;
    find_subtrees(map, everyone, on_nodes);
    for (const std::span<const int> subtree : on_nodes)
      add_scan(map, reduction.reads, reduction.fold.order, everyone, subtree);
  } else {
    for (size_t node = 0; node < map.nodes(); ++node)
      for (const int reader : map.ranks_of[node])
        if (const std::vector<int> sources = sources_of(reader, everyone, reduction.reads); !sources.empty())
          result_of[static_cast<size_t>(reader)] = add_result(map, node, sources, {});
  }
  cut(map, reduction, bytes);
}

void SumPlan::cut(const NodeMap& map, const Transport::Reduction& reduction, size_t bytes) {
  for (const auto& of_node : subtrees) most_subtrees = std::max(most_subtrees, of_node.size());
  few = reduction.slices.empty() && map.nodes() * most_subtrees * bytes <= few_in_all;
  gathers = reduction.slices.empty() && !few;
  for (size_t node = 0; node < map.nodes(); ++node) {
    Range slice = few ? Range{0, elements} : Range{0, elements}.slice(node, map.nodes());
    if (!reduction.slices.empty()) {
      slice = {elements, 0};
      for (const int reader : map.ranks_of[node]) {
        const Range read = reduction.slices[static_cast<size_t>(reader)];
        if (read.size() == 0) continue;
        slice.first = std::min(slice.first, read.first / size_of(reduction.fold.dtype));
        slice.last = std::max(slice.last, read.last / size_of(reduction.fold.dtype));
      }
      if (slice.first > slice.last) slice = {0, 0};
    }
    before.push_back(few ? 0 : all_slices);
    all_slices = before.back() + slice.size();
    slices.push_back(slice);
  }
}

bool SumPlan::adds() const {
  return std::any_of(results.begin(), results.end(), [](const Result& each) { return each.sources.size() > 1; });
}

}  // namespace weft
