#pragma once
#include "engine/tape.h"
#include "optim/rules.h"

namespace weft {

// What Adafactor keeps for a parameter of two axes or more: averages of the means of squares along the last axis and
// along the one before it. Where a group divides the parameter, each rank has those of its slice.
struct Factors {
  Tensor rows, columns;

  Factors() = default;
  Factors(const Shape& parameter, DType dtype, Device device);
  // The gradient of this step, each element divided by what the factors, brought up to date with it, say is its size.
  // All ranks of the group call it.
  Tensor direction(const Tensor& gradient, const Parameter& parameter, const UpdateScalars& scalars);
};

}  // namespace weft
