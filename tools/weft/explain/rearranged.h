// SPDX-License-Identifier: Apache-2.0
#pragma once
// The right numbers in wrong places: shifted, reversed, transposed, blocks that have changed places.
#include "tools/weft/explain/given.h"

namespace weft::verify {

std::vector<Described> by_rearrangement(const Given& given);

}  // namespace weft::verify
