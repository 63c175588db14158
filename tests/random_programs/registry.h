// SPDX-License-Identifier: Apache-2.0
#pragma once
// Calls of the registry's ops by name, on inputs that are fitted to one of the op's samples.
#include <string>

#include "weft/engine/tape/tape.h"

namespace weft::random_programs {

// Sample number `sample` of an op. Inputs, elements of which are at most `bound`, are moved into the sample's range,
// and the result is fitted to matrices of three columns.
Var call_sample(const std::string& op, size_t sample, const Vars& inputs, double bound, int64_t result_rows);

}  // namespace weft::random_programs
