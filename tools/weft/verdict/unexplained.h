// SPDX-License-Identifier: Apache-2.0
#pragma once
// Mistakes whose numbers no formula predicts: they are known by other marks.
#include "tools/weft/verdict/verdict.h"

namespace weft::verify {

// Fills in the cause of a verdict that has none, S27 or S28, or a remark that comes near to one.
void explain_without_formula(Verdict& verdict, const ParameterEvidence& parameter, const Dump& dump);

}  // namespace weft::verify
