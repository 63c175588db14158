// SPDX-License-Identifier: Apache-2.0
#include "weft/collectives/transports/nodes/crossing.h"

#include <algorithm>

namespace weft {

Crossing::Table Crossing::table_of(Transport::Bytes mine, const Transport::Ranges& ranges) {
  Table table{{0, mine.size()}};
  table.insert(table.end(), ranges.of_peers.begin(), ranges.of_peers.end());
  table.insert(table.end(), ranges.by_peers.begin(), ranges.by_peers.end());
  return table;
}

Crossing::Crossing(const NodeMap& map, size_t longest, std::vector<Table> tables)
    : map_(map), longest_(longest), tables_(std::move(tables)), all_(tables_[0].size() == 1), came_from_(map.ranks()) {
  size_t at = (all_ ? 1 : map_.nodes()) * stride();  // what leaves comes first
  for (size_t node = 0; node < map_.nodes(); ++node) {
    node_came_.push_back({at, at});
    if (node == map_.node) continue;
    for (const int source : map_.ranks_of[node]) {
      std::vector<Range> each;
      for (size_t i = 0; i < map_.here().size(); ++i) each.push_back(read_by(i, source));
      Pieces& pieces = came_from_[static_cast<size_t>(source)];
      pieces = {at, merged(std::move(each))};
      at += pieces.bytes();
    }
    node_came_[node].last = at;
  }
  board_bytes_ = at;
}

void Crossing::pack(size_t me, const std::byte* bytes, std::byte* board) const {
  const size_t exposed = tables_[me][0].size();
  for (size_t node = 0; node < map_.nodes(); ++node) {
    if (node == map_.node) continue;
    std::byte* place = board + out(node).first;
    for (size_t i = 0; i <= me; ++i)
      for (const Range& piece : leaving(i, node)) {
        if (const size_t last = std::min(piece.last, exposed); i == me && piece.first < last)
          std::copy_n(bytes + piece.first, last - piece.first, place);
        place += piece.size();
      }
    if (all_) return;  // one place for all nodes
  }
}

NodeSwap Crossing::swap() const {
  const size_t nodes = map_.nodes(), bytes = (all_ ? 1 : nodes) * stride();
  NodeSwap swap{{0, bytes}, bytes, std::vector<Range>(nodes), std::vector<Range>(nodes)};
  for (size_t node = 0; node < nodes; ++node) {
    if (node == map_.node) continue;
    const size_t theirs = all_ ? 0 : map_.node * stride();
    swap.of_peers[node] = {theirs, theirs + node_came_[node].size()};
    swap.by_peers[node] = {out(node).first, out(node).first};
    for (size_t i = 0; i < map_.here().size(); ++i)
      for (const Range& piece : leaving(i, node)) swap.by_peers[node].last += piece.size();
  }
  return swap;
}

void Crossing::unpack(const Transport::Part& part, std::byte* board) const {
  for (size_t node = 0; node < map_.nodes(); ++node) {
    const size_t theirs = all_ ? 0 : map_.node * stride();
    copy_common(part.of(node), part.peers[node], {theirs, theirs + node_came_[node].size()},
                board + node_came_[node].first);
  }
}

const std::byte* Crossing::bytes_of(size_t source, size_t i, const std::byte* board) const {
  const Range mine = read_by(i, static_cast<int>(source));
  const std::byte* place = board + came_from_[source].at;
  for (const Range& piece : came_from_[source].pieces) {
    if (mine.first <= piece.last && mine.first >= piece.first) return place - piece.first;
    place += piece.size();
  }
  return place;
}

Transport::Range Crossing::read_here(size_t i, size_t reader) const {
  const Range read = read_by(reader, map_.here()[i]);
  const size_t exposed = tables_[i][0].size();
  return {std::min(read.first, exposed), std::min(read.last, exposed)};
}

size_t Crossing::Pieces::bytes() const {
  size_t sum = 0;
  for (const Range& piece : pieces) sum += piece.size();
  return sum;
}

// The union of ranges, in pieces that do not touch.
std::vector<Transport::Range> Crossing::merged(std::vector<Range> ranges) {
  std::erase_if(ranges, [](const Range& range) { return range.size() == 0; });
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) { return a.first < b.first; });
  std::vector<Range> pieces;
  for (const Range& range : ranges) {
    if (pieces.empty() || range.first > pieces.back().last) pieces.push_back(range);
    pieces.back().last = std::max(pieces.back().last, range.last);
  }
  return pieces;
}

// What the ranks of a node read of the i-th rank of this one.
std::vector<Transport::Range> Crossing::leaving(size_t i, size_t node) const {
  std::vector<Range> each;
  for (const int reader : map_.ranks_of[node]) each.push_back(read_of(i, reader));
  return merged(std::move(each));
}

Transport::Range Crossing::out(size_t node) const {
  const size_t first = all_ ? 0 : node * stride();
  return {first, first + stride()};
}

}  // namespace weft
