// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "weft/collectives/transports/nodes/node_steps.h"

namespace weft {
namespace {

using Range = ByteRange;

// The union of ranges, in pieces that do not touch.
std::vector<Range> merged(std::vector<Range> ranges) {
  std::erase_if(ranges, [](const Range& range) { return range.size() == 0; });
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) { return a.first < b.first; });
  std::vector<Range> pieces;
  for (const Range& range : ranges) {
    if (pieces.empty() || range.first > pieces.back().last) pieces.push_back(range);
    pieces.back().last = std::max(pieces.back().last, range.last);
  }
  return pieces;
}

// What the ranks of this node read, and what others read of them.
struct Reads {
  const NodeMap& map;
  const size_t longest;
  const std::vector<Crossing::Table>& tables;

  bool all() const { return tables[0].size() == 1; }
  Range by(size_t i, int source) const { return all() ? Range{0, longest} : tables[i][1 + size_t(source)]; }
  Range of(size_t i, int reader) const {
    return all() ? Range{0, longest} : tables[i][1 + map.ranks() + size_t(reader)];
  }
  Range exposed(size_t i, const Range& range) const {
    return {std::min(range.first, tables[i][0].last), std::min(range.last, tables[i][0].last)};
  }
  // What leaves the i-th rank here for a node, and what comes here from a rank on another node.
  std::vector<Range> leaving(size_t i, size_t node) const {
    std::vector<Range> read;
    for (const int reader : map.ranks_of[node]) read.push_back(of(i, reader));
    return merged(std::move(read));
  }
  std::vector<Range> coming(int source) const {
    std::vector<Range> read;
    for (size_t i = 0; i < map.here().size(); ++i) read.push_back(by(i, source));
    return merged(std::move(read));
  }
};

}  // namespace

Crossing::Table Crossing::table_of(Transport::Bytes mine, const Transport::Ranges& ranges) {
  Table table{{0, mine.size()}};
  table.insert(table.end(), ranges.of_peers.begin(), ranges.of_peers.end());
  table.insert(table.end(), ranges.by_peers.begin(), ranges.by_peers.end());
  return table;
}

NodeSteps Crossing::steps(const NodeMap& map, size_t me, size_t longest, const std::vector<Table>& tables) {
  const Reads reads{map, longest, tables};
  const bool all = reads.all();
  const size_t for_a_node = map.most_ranks() * longest, out = all ? for_a_node : map.nodes() * for_a_node;
  NodeSteps made{out};
  made.swap = {{0, out}, out, std::vector<Range>(map.nodes()), std::vector<Range>(map.nodes())};
  made.begins.resize(map.ranks());
  for (size_t node = 0; node < map.nodes(); ++node) {
    if (node == map.node) continue;
    const bool copied = all && !made.swap.arrivals.empty();  // one place for all nodes
    Range& leaves = made.swap.by_peers[node];
    leaves.first = leaves.last = all ? 0 : node * for_a_node;
    for (size_t i = 0; i < map.here().size(); ++i) {
      for (const Range& piece : reads.leaving(i, node)) {
        if (!copied) made.copies.push_back({i, reads.exposed(i, piece), leaves.last});
        leaves.last += piece.size();
      }
    }
    const size_t arrives_at = made.board;
    for (const int source : map.ranks_of[node]) {
      for (const Range& piece : reads.coming(source)) {
        if (const size_t first = reads.by(me, source).first; piece.first <= first && first <= piece.last)
          made.begins[size_t(source)] =
              static_cast<std::ptrdiff_t>(made.board) - static_cast<std::ptrdiff_t>(piece.first);
        made.board += piece.size();
      }
    }
    const size_t theirs = all ? 0 : map.node * for_a_node;
    made.swap.of_peers[node] = {theirs, theirs + made.board - arrives_at};
    made.swap.arrivals.push_back({node, made.swap.of_peers[node], arrives_at});
  }
  for (size_t i = 0; i < map.here().size(); ++i)
    made.read_here.push_back(reads.exposed(i, reads.by(me, map.here()[i])));
  return made;
}

}  // namespace weft
