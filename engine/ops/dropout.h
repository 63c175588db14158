// SPDX-License-Identifier: Apache-2.0
#pragma once
// Dropout with explicit random numbers.
#include "weft/engine/tape/tape.h"

namespace weft {

// Zeroes each element with probability p, and scales the others by 1 / (1 - p). Element i uses draw i of the key, so
// the same key gives the same mask on every device, for every dtype, and in the second run of a checkpoint. For a slice
// of a batch, key.at(first) gives the mask of the slice in the whole batch.
Var dropout(const Var& x, double p, Random key);

}  // namespace weft
