// SPDX-License-Identifier: Apache-2.0
#pragma once
// What is wrong with the update of an optimizer that no signature explains.
#include "tools/weft/verdict/verdict.h"

namespace weft::verify {

// Fills in the cause of a verdict that has none. `truth`: by rank.
void explain_update(Verdict& verdict, const ParameterEvidence& parameter, const Dump& dump,
                    const std::vector<Matrix>& truth);

}  // namespace weft::verify
