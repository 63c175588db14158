// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "weft/engine/tensor/tensor.h"

namespace weft {

struct Addition {  // to = a + b; `to` may be one of them
  Tensor a, b, to;
};

}  // namespace weft
