// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <set>

#include "tests/random_programs/program.h"

namespace weft::random_programs {

// What programs may have besides leaves, local operations and collectives of all ranks; empty: everything.
using Features = std::set<std::string>;
const Features& all_features();

// The same program for the same seed and features.
Program random_program(uint64_t seed, const Features& only = {});

}  // namespace weft::random_programs
