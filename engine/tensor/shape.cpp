// SPDX-License-Identifier: Apache-2.0
#include "weft/engine/tensor/shape.h"

namespace weft {

void Shape::throw_invalid() const {
  for (int i = 0; i < rank_; ++i)
    require(extents_[i] >= 0, "shape: extent ", extents_[i], " of axis ", i, " is negative");
  fail({"shape: ", text(), " is too large; its extents, but for zeros, may multiply to ", std::to_string(max_size),
        " at most"});
}

}  // namespace weft
