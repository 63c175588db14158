#pragma once
// How rows of all ranks, such as the keys of a contrastive loss, come to every rank: in blocks, each of which a
// function looks at. All ways give the same values and the same gradients.
//
//   gather      all rows at once, by one all_gather
//   ring        each rank's rows go from neighbour to neighbour; while one block is looked at, the next is on its way
//   both_ways   the same in both directions at once: half the hops
//   in_turn     one rank's rows to everybody, rank by rank
//   chunked     at most `chunk` rows of every rank at a time
//
// The first three keep all rows until backward has passed. The last two keep none: every block comes once more in
// backward, and is looked at again. They need the memory of one block, and half as much traffic again.
#include "collectives/communicator.h"
#include "engine/tape.h"

namespace weft {

struct Exchange {
  enum class Way : uint8_t { gather, ring, both_ways, in_turn, chunked };
  Way way = Way::gather;
  int64_t chunk = 1024;
};

// Rows with consecutive numbers. The rows of all ranks are numbered rank by rank.
struct RowRun {
  int64_t first, count;
};
using RowRuns = std::vector<RowRun, pool::Allocator<RowRun>>;

struct Block {
  Var rows;
  RowRuns runs;  // which rows these are, in their order
};
struct Seen {
  Var result;
  RowRuns runs;
};
using SeenBlocks = std::vector<Seen, pool::Allocator<Seen>>;

// What `look` makes of every block, in the order in which they come, which may differ between ranks. Blocks without
// rows are not looked at. `rows` says how many each rank has; `look` must compute the same if it is called again.
using Look = PooledFunction<Var(const Block&)>;
SeenBlocks look_at_all(const Var& own, const Rows& rows, const Exchange& exchange, Communicator& comm, const Look& look,
                       Site site = Site::here());

// The place of each of these numbers among the rows of a block, or -1.
Tensor places_in(const RowRuns& runs, const Tensor& numbers);

// Values that belong to the rows of all blocks, put in the order of their numbers. One-dimensional.
Var in_order(std::span<const Seen> parts);

}  // namespace weft
