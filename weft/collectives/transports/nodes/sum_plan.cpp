// SPDX-License-Identifier: Apache-2.0
#include "weft/collectives/transports/nodes/sum_plan.h"

#include <algorithm>

namespace weft {
namespace {

// A list with each value once. Returns where it is.
template <class T> size_t put_once(std::vector<T>& list, const T& value) {
  const auto place = std::find(list.begin(), list.end(), value);
  if (place == list.end()) return list.push_back(value), list.size() - 1;
  return static_cast<size_t>(place - list.begin());
}

}  // namespace

void SumPlan::add_subtrees(const NodeMap& map, Result& result, std::span<const int> ranks) {
  const size_t node = map.node_of[static_cast<size_t>(ranks[0])];
  if (std::all_of(ranks.begin(), ranks.end(), [&](int r) { return map.node_of[static_cast<size_t>(r)] == node; })) {
    result.subtrees.push_back({node, put_once(subtrees[node], {ranks.begin(), ranks.end()})});
    result.first_ranks.push_back(ranks[0]);
    return;
  }
  const size_t half = first_half(ranks);
  add_subtrees(map, result, ranks.first(half));
  add_subtrees(map, result, ranks.subspan(half));
}

SumPlan::SumPlan(const NodeMap& map, const Transport::Sums& sums, size_t bytes)
    : result_of(map.ranks(), none), subtrees(map.nodes()), elements(bytes / size_of(sums.fold.dtype)) {
  const int n = static_cast<int>(map.ranks());
  std::vector<std::vector<int>> distinct;
  for (const std::vector<int>& readers : map.ranks_of) {
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
    add_subtrees(map, results.back(), results.back().sources);
  }
  for (const auto& of_node : subtrees) most_subtrees = std::max(most_subtrees, of_node.size());
  few = sums.slices.empty() && map.nodes() * most_subtrees * bytes <= 1024;
  gathers = sums.slices.empty() && !few;
  for (size_t node = 0; node < map.nodes(); ++node) {
    Range slice = few ? Range{0, elements} : Range{0, elements}.slice(node, map.nodes());
    if (!sums.slices.empty()) {
      slice = {elements, 0};
      for (const int reader : map.ranks_of[node]) {
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

bool SumPlan::adds() const {
  return std::any_of(results.begin(), results.end(), [](const Result& each) { return each.sources.size() > 1; });
}

}  // namespace weft
