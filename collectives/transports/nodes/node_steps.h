// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the ranks of a node do in a collective on several nodes, as a plain list. The lists of all nodes are all there
// is of how data move: Nodes carries out that of its node, whole or in two halves.
#include <memory>
#include <optional>
#include <vector>

#include "weft/collectives/fold.h"
#include "weft/collectives/transports/nodes/node_map.h"

namespace weft {

struct SumPlan;

struct NodeSteps {
  using Range = ByteRange;
  struct Copy {
    size_t rank;  // on this node
    Range bytes;  // of those that it exposes
    size_t at;    // on the board
  };
  struct Folding {
    Fold fold;
    std::vector<size_t> terms;  // where those of its ranks begin on the board; none: they are what its ranks expose
    Range elements;             // of the terms
    size_t at;                  // on the board

    // If the terms are on the board.
    void write(const std::byte* board, std::byte* to) const;
  };
  // What the leaders of the nodes exchange. The ranges are by node, of what each lets the others read.
  struct Swap {
    struct Arrival {
      size_t node;
      Range bytes;  // of what it lets others read
      size_t at;    // on the board
    };
    Range out = {};      // of the board: what this node lets others read
    size_t longest = 0;  // that any node lets others read
    std::vector<Range> of_peers = {}, by_peers = {};
    std::vector<Arrival> arrivals = {};

    Transport::Ranges ranges() const { return {of_peers, by_peers}; }
    void put(const Transport::Part& part, std::byte* board) const;  // what arrives in a part
  };

  size_t board = 0;  // its bytes
  // 1. The ranks of the node put on the board what leaves it: each copies its bytes, or folds a share of the elements.
  std::vector<Copy> copies = {};
  std::vector<Folding> subtrees = {};
  // 2. The leaders swap, and each folds what came together with what its own node has.
  Swap swap = {};
  std::vector<Folding> sums = {};
  // 3. They gather these sums, if each has only a slice of them.
  std::optional<Swap> gathering = {};
  // 4. What this rank gets. In an exchange: where on the board byte 0 of each rank on another node would be, and what
  // it reads of each rank of its own node.
  std::vector<std::ptrdiff_t> begins = {};
  std::vector<Range> read_here = {};
  // In a reduction: what lies there, or a fold of it.
  std::optional<size_t> result = {};
  std::optional<Folding> scan = {};

  std::shared_ptr<const SumPlan> plan = {};  // which has the ranks of all folds

  // A share of the terms; `here` are the addresses of its first byte, by rank of the node.
  void fold_subtrees(const NodeMap& map, std::span<const std::byte* const> here, Range share, std::byte* board) const;
  void fold_sums(std::byte* board) const;
  void take(const std::byte* board, std::span<std::byte> result) const;
  // The addresses of byte 0 of the ranks on other nodes, for what this rank reads of them.
  std::vector<const std::byte*> peers(const std::byte* board) const;
};

// Of an exchange. For each node and each rank there, the bytes that any rank of the node reads of it lie one behind the
// other on the boards of both nodes, none of them twice. What leaves for a node has its place on the board for it, of
// the same size for each, so that its reader knows where it begins.
struct Crossing {
  // What a rank exposes. Unless every rank reads everything, what it reads of each rank, and each rank of it, follow.
  using Table = std::vector<ByteRange>;
  static Table table_of(Transport::Bytes mine, const Transport::Ranges& ranges);
  // `tables` are those of the ranks of this node, among which this one is number `me`.
  static NodeSteps steps(const NodeMap& map, size_t me, size_t longest, const std::vector<Table>& tables);
};

// Of a reduction of the ranks' tensors of so many bytes (sum_plan.h), for one of the ranks of this node. None if no two
// terms are added.
std::optional<NodeSteps> reduction_steps(const NodeMap& map, int rank, const Transport::Reduction& reduction,
                                         size_t bytes);

}  // namespace weft
