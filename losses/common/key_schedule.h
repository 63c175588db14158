// SPDX-License-Identifier: Apache-2.0
#pragma once
// The rows of all ranks, such as the keys of a contrastive loss, reach every rank in blocks, and a function is applied
// to each block. A schedule decides how the blocks travel; all schedules give the same values and the same gradients.
//
//   gather      all rows at once, by one all_gather
//   ring        rows pass from neighbour to neighbour; the next block is in flight while the function runs on this one
//   both_ways   the same in both directions at once: half the hops
//   per_rank    one rank's rows to all ranks, rank by rank
//   chunked     at most `chunk` rows of every rank at a time
//
// The first three keep all rows until backward. The last two keep none: backward communicates every block again and
// recomputes the function. They need memory for one block, and half as much traffic again.
#include "weft/collectives/communicator.h"
#include "weft/engine/tape/tape.h"

namespace weft {

struct KeySchedule {
  enum Kind : uint8_t { gather, ring, both_ways, per_rank, chunked };
  Kind kind = gather;
  int64_t chunk = 1024;
};

// Rows with consecutive global numbers. Rows are numbered across ranks in rank order.
struct RowRun {
  int64_t first, count;
};
using RowRuns = std::vector<RowRun, pool::Allocator<RowRun>>;

struct Block {
  Var rows;
  RowRuns runs;  // the global numbers of the rows, in order
};
struct BlockResult {
  Var result;
  RowRuns runs;
};
using BlockResults = std::vector<BlockResult, pool::Allocator<BlockResult>>;

// Applies `function` to every block that has rows. The results are in order of arrival, which may differ between ranks.
// `rows` holds the number of rows on each rank. `function` must return the same values if backward calls it again.
using BlockFunction = PooledFunction<Var(const Block&)>;
BlockResults map_blocks(const Var& own, const Rows& rows, const KeySchedule& schedule, Communicator& comm,
                        const BlockFunction& function, Site site = Site::here());

// The position of each global number among the rows of a block, or -1.
Tensor places_in(const RowRuns& runs, const Tensor& numbers);

// One value per row from all blocks, sorted by global number. One-dimensional.
Var in_order(std::span<const BlockResult> parts);

}  // namespace weft
