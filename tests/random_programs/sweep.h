// SPDX-License-Identifier: Apache-2.0
#pragma once
// Small programs that together have every operation on every placement of its inputs, over every kind of group.
#include <functional>

#include "tests/random_programs/program.h"

namespace weft::random_programs {

// Calls `visit` with each program for this number of ranks: the operation is the last step.
void sweep(int ranks, const std::function<void(const Program&)>& visit);

}  // namespace weft::random_programs
