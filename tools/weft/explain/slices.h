// SPDX-License-Identifier: Apache-2.0
#pragma once
// A gradient that the reducer divides among ranks, and divides wrongly: another rank's slice, along another dimension,
// before the sum, or from another place on.
#include "tools/weft/explain/given.h"

namespace weft::verify {

std::vector<Described> by_slices(const Given& given);

}  // namespace weft::verify
