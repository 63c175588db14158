#pragma once
// Rows of a batch that is divided among ranks, chosen by their numbers in the whole batch: the same rows on every rank,
// however the batch is divided.
#include "collectives/communicator.h"

namespace weft {

// So many different numbers below `total`, ascending, each set of them equally likely; where there are not enough, all
// of them again and again.
Rows chosen_numbers(int64_t count, int64_t total, const Random& key);

// The rows of these ascending numbers, counted rank by rank, on every rank: one all_gather, of nothing else.
Tensor rows_by_number(const Tensor& mine, const Rows& numbers, Communicator& comm, Site site = Site::here());

}  // namespace weft
