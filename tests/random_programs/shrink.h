// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "tests/random_programs/trial.h"

namespace weft::random_programs {

// The smallest program found that has the same kind of finding: with fewer steps, terms, ranks, halves and checkpoints.
Program shrunk(const Program& program, const Finding& finding, const Rules& rules);

}  // namespace weft::random_programs
