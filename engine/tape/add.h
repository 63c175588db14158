// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "weft/engine/tape/var.h"

namespace weft {

// The one operation that the tape itself needs: if a value is used several times, a walk adds its cotangents.
Var operator+(const Var& a, const Var& b);

}  // namespace weft
