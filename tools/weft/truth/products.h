// SPDX-License-Identifier: Apache-2.0
#pragma once
// Products of large matrices, which are most of what a verdict costs: by Eigen, compiled for each kind of CPU.
#include <cstdint>

#include "tools/weft/truth/sample.h"

namespace weft::verify {

enum class Transposed : uint8_t { none, left, right };
Matrix product(const Matrix& a, const Matrix& b, Transposed transposed = Transposed::none);

}  // namespace weft::verify
