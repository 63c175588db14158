// SPDX-License-Identifier: Apache-2.0
#pragma once
// The verdict on a parameter whose gradients are too large to be held: whether they are right is found in one pass over
// all of them, and what made them wrong in a part.
#include "tools/weft/verdict/streamed_rank.h"

namespace weft::verify {

// All elements of all ranks against what they should be, in one pass.
std::vector<StreamedRank> streamed(const StoredParameter& parameter, const Dump& dump);

Verdict streamed_verdict(const ParameterEvidence& parameter, const Dump& dump);

}  // namespace weft::verify
