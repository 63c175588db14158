// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a reducer did that has no name: a sequence of fits to the dump itself, from the simplest on. What is told
// explains every element to rounding; if several fits of the same simplicity do, all of them are told.
#include "tools/weft/verdict/verdict.h"

namespace weft::verify {

// Fills in the cause of a verdict that has none.
void explain(Verdict& verdict, const ParameterEvidence& parameter, const Dump& dump);

}  // namespace weft::verify
