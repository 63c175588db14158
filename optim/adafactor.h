// SPDX-License-Identifier: Apache-2.0
#pragma once
// The factored second moments of Adafactor (rules.h). They replace one number per element of a matrix by one per row
// and one per column.
#include "weft/engine/tape/tape.h"
#include "weft/optim/rules.h"

namespace weft {

// For a parameter of two or more axes: moving averages of the mean squared gradient along the last axis and along the
// one before it. If a group divides the parameter, each rank has the factors of its slice.
struct Factors {
  Tensor rows, columns;

  Factors() = default;
  Factors(const Shape& parameter, DType dtype, Device device);
  // Updates the factors with the gradient of this step, and returns the gradient, each element divided by the root of
  // its factored second moment. All ranks of the group must call it.
  Tensor direction(const Tensor& gradient, const Parameter& parameter, const UpdateScalars& scalars);
};

}  // namespace weft
