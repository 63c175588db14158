// SPDX-License-Identifier: Apache-2.0
#pragma once
// The bytes of an exchange that cross between nodes, and their places on the board of a node.
//
// For each node and each rank there, the bytes that any rank of the node reads of it lie one behind the other on the
// boards of both nodes, none of them twice. What leaves for a node has its place on the board for it, of the same size
// for each, so that its reader knows where it begins.
#include "weft/collectives/transports/nodes/node_map.h"

namespace weft {

class Crossing {
 public:
  using Range = Transport::Range;
  // What a rank exposes. Unless every rank reads everything, what it reads of each rank, and each rank of it, follow.
  using Table = std::vector<Range>;
  static Table table_of(Transport::Bytes mine, const Transport::Ranges& ranges);

  // `tables` are those of the ranks of this node.
  Crossing(const NodeMap& map, size_t longest, std::vector<Table> tables);

  size_t board_bytes() const { return board_bytes_; }
  void pack(size_t i, const std::byte* bytes, std::byte* board) const;  // what leaves the i-th rank of this node
  NodeSwap swap() const;
  void unpack(const Transport::Part& part, std::byte* board) const;
  // Where byte 0 of a rank on another node would be, for the bytes that the i-th rank of this node reads of it.
  const std::byte* bytes_of(size_t source, size_t i, const std::byte* board) const;
  // What a reader of this node reads of the i-th rank of this node, as far as it is exposed.
  Range read_here(size_t i, size_t reader) const;

 private:
  struct Pieces {
    size_t at = 0;  // on the board
    std::vector<Range> pieces;
    size_t bytes() const;
  };
  Range read_by(size_t i, int source) const { return all_ ? Range{0, longest_} : tables_[i][1 + size_t(source)]; }
  Range read_of(size_t i, int reader) const {
    return all_ ? Range{0, longest_} : tables_[i][1 + map_.ranks() + size_t(reader)];
  }
  static std::vector<Range> merged(std::vector<Range> ranges);
  std::vector<Range> leaving(size_t i, size_t node) const;
  size_t stride() const { return map_.most_ranks() * longest_; }
  Range out(size_t node) const;

  const NodeMap& map_;
  const size_t longest_;
  const std::vector<Table> tables_;
  const bool all_;
  std::vector<Pieces> came_from_;  // of each rank on another node
  std::vector<Range> node_came_;   // on the board, from each node
  size_t board_bytes_;
};

}  // namespace weft
