// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cmath>
#include <limits>

#include "weft/engine/maths/format.h"
#include "weft/engine/tensor/tensor.h"

namespace weft {

// The four parts of an element as engine/ops/exact.h defines them, for CPU and CUDA.
struct ExactParts {
  double at[4];

  // Adds the smallest parts first, so that the total is rounded little. `sums` has n values of each part.
  static WEFT_HD double total(const double* sums, int64_t n, int64_t i) {
    return ((sums[3 * n + i] + sums[2 * n + i]) + sums[n + i]) + sums[i];
  }

  explicit WEFT_HD ExactParts(double term) {
    double rest = std::abs(term) < 0x1p24 ? term : std::numeric_limits<double>::quiet_NaN();
    double unit = 0x1p-8;
    for (double& part : at) {
      part = std::rint(rest / unit) * unit;
      rest -= part;
      unit *= 0x1p-32;
    }
  }
};

// Terms of exact sums, for their elements from element `first` on.
struct ExactRun {
  Tensor x;
  int64_t first = 0;
};

}  // namespace weft
