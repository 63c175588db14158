// SPDX-License-Identifier: Apache-2.0
#pragma once
// A tensor of given f64 numbers and its numbers, for tests of the tape.
#include <vector>

#include "weft/engine/tensor/tensor.h"

namespace weft {

using Values = std::vector<double>;

inline Tensor vector(const Values& values) {
  return Tensor::from({static_cast<int64_t>(values.size())}, values, DType::f64);
}

}  // namespace weft
