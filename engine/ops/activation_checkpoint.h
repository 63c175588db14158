// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "weft/engine/tape/tape.h"

namespace weft {

// Trades time for memory: runs `f` without saving tensors, and runs it again in backward. Both runs must compute the
// same values, so `f` must draw random numbers from explicit keys, as dropout does.
Var checkpoint(PooledFunction<Var(std::span<const Var>)> f, Vars inputs);
// The same with several results. The program need not use all of them. Results of integer types have no gradient.
Vars checkpoint(PooledFunction<Vars(std::span<const Var>)> f, Vars inputs);

}  // namespace weft
