#pragma once
// Dropout with explicit random numbers.
#include "engine/tape.h"

namespace weft {

// Each element is zeroed with probability p, the others scaled by 1 / (1 - p). Element i takes draw i of the key: the
// same key gives the same mask on every device, for every dtype and when a checkpoint runs again; key.at(first) makes a
// part of a batch draw what it would in the whole.
Var dropout(const Var& x, double p, Random key);

}  // namespace weft
