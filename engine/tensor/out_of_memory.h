// SPDX-License-Identifier: Apache-2.0
#pragma once
// The Error for an allocation that fails. It is a type of its own because it has its own exit code.
#include "weft/engine/tensor/error.h"

namespace weft {

struct OutOfMemory : Error {
  using Error::Error;
};

}  // namespace weft
