// SPDX-License-Identifier: Apache-2.0
#pragma once
// Ranks that put gradients into a bucket in different orders, so that those of two parameters are added up.
#include "tools/weft/explain/given.h"

namespace weft::verify {

std::vector<Described> by_other_parameter(const Given& given);

}  // namespace weft::verify
