// SPDX-License-Identifier: Apache-2.0
#pragma once
// Random rows of a batch that is divided among ranks. Rows are chosen by their global numbers, so every rank gets the
// same rows, however the batch is divided.
#include "weft/collectives/communicator.h"

namespace weft {

// `count` different numbers below `total`, ascending; every such set is equally likely. If `count` exceeds `total`,
// numbers repeat evenly.
Rows chosen_numbers(int64_t count, int64_t total, const Random& key);

// Returns the rows with these ascending global numbers, on every rank. Costs a small collective for the counts and one
// all_gather of the chosen rows only.
Tensor rows_by_number(const Tensor& mine, const Rows& numbers, Communicator& comm, Site site = Site::here());

}  // namespace weft
